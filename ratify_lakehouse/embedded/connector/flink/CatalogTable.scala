package ratify.flink

import java.nio.file.{Files, Path}
import java.util
import java.util.{Optional, Properties}
import java.util.function.Supplier

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.delta.kernel.Snapshot
import io.delta.kernel.defaults.engine.DefaultEngine
import io.delta.kernel.engine.Engine
import io.delta.kernel.unitycatalog.{UCCatalogManagedClient, UCTableIdentifier}
import io.delta.storage.commit.TableIdentifier
import io.delta.storage.commit.uccommitcoordinator.{UCDeltaClient, UCDeltaTokenBasedRestClient}
import org.apache.flink.runtime.util.EnvironmentInformation
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{Path => HadoopPath}

/**
 * Where a table is. It is part of the job graph, so it holds no secret: `credentials` is the path of a file, which each
 * JVM reads itself; without one it reads its environment.
 */
final case class TableAddress(endpoint: String, catalog: String, schema: String, table: String, credentials: Option[String]) {
  def fullName: String = s"$catalog.$schema.$table"
}

/** A table at one version, and the engine that reads and writes its files. */
final case class OpenTable(id: String, engine: Engine, snapshot: Snapshot)

/** The catalog's client of one table. It renews OAuth tokens; a changed file of credentials makes a new one. */
final class CatalogTable(val address: TableAddress) extends AutoCloseable {
  private var current: Option[(Map[String, String], UCDeltaClient)] = None

  /** Loads the newest version, with credentials for its files. */
  def open(): OpenTable = {
    val uc = client()
    val info = uc.loadTable(new TableIdentifier(Array(address.catalog, address.schema), address.table))
    val id = info.getTableId.toString
    val conf = CatalogTable.hadoop()
    val scheme = Option(new HadoopPath(info.getLocation).toUri.getScheme)
    if (scheme.forall(_ == "file")) CatalogTable.useRawFiles(conf)
    info.getStorageProperties.asScala.foreach { case (key, value) => conf.set(key, value) }
    val engine = DefaultEngine.create(conf)
    val name = new UCTableIdentifier(address.catalog, address.schema, address.table)
    val snapshot = new UCCatalogManagedClient(uc)
      .loadSnapshot(engine, id, info.getLocation, name, Optional.empty(), Optional.empty())
    OpenTable(id, engine, snapshot)
  }

  override def close(): Unit = {
    current.foreach { case (_, uc) => uc.close() }
    current = None
  }

  private def client(): UCDeltaClient = {
    val options = Credentials.read(address)
    if (!current.exists(_._1 == options)) {
      close()
      val versions = Map("appVersions.Flink" -> EnvironmentInformation.getVersion)
      val hadoop: Supplier[Configuration] = () => CatalogTable.hadoop()
      val unlimited = new UCDeltaTokenBasedRestClient(new util.HashMap((options ++ versions).asJava), hadoop)
      current = Some(options -> LimitedClient(unlimited, CatalogTable.LongestCallSeconds))
    }
    current.get._2
  }
}

object CatalogTable {
  private val LongestCallSeconds = 60L

  /** Hadoop's local file system writes a .crc file beside each file, and refuses one that another engine has replaced. */
  private def useRawFiles(conf: Configuration): Unit = {
    conf.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    conf.set("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs")
  }

  private[flink] def hadoop(): Configuration = {
    val conf = new Configuration()
    // The catalog names objects s3://…, Hadoop's file system for them is S3A.
    conf.set("fs.s3.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem")
    // Only the credentials that the catalog vends, whatever the environment has.
    conf.set("fs.s3a.aws.credentials.provider", "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider")
    def found(names: String*) = names.flatMap(sys.env.get).find(_.nonEmpty)
    found("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL").foreach(conf.set("fs.s3a.endpoint", _))
    found("AWS_REGION", "AWS_DEFAULT_REGION").foreach(conf.set("fs.s3a.endpoint.region", _))
    conf
  }
}

/** The catalog's credentials, as options of Delta's client. */
object Credentials {
  def read(address: TableAddress): Map[String, String] = {
    val settings = address.credentials.map(path => file(Path.of(path))).getOrElse(environment)
    def found(name: String) = settings.get(name).filter(_.nonEmpty)
    val auth = (found("client-id"), found("client-secret"), found("token")) match {
      case (Some(id), Some(secret), _) =>
        Map(
          "auth.type" -> "oauth",
          "auth.oauth.uri" -> found("token-uri").getOrElse(s"${address.endpoint}/oidc/v1/token"),
          "auth.oauth.clientId" -> id,
          "auth.oauth.clientSecret" -> secret)
      case (_, _, Some(token)) => Map("auth.type" -> "static", "auth.token" -> token)
      case _ =>
        val where = address.credentials.fold("the environment (UNITY_TOKEN, or UNITY_CLIENT_ID and UNITY_CLIENT_SECRET)")(
          path => s"$path (token, or client-id and client-secret)")
        throw new FinalFailure(s"There are no credentials for the catalog ${address.endpoint} in $where.")
    }
    auth + ("uri" -> address.endpoint)
  }

  private def environment: Map[String, String] =
    Seq("token" -> "UNITY_TOKEN", "client-id" -> "UNITY_CLIENT_ID", "client-secret" -> "UNITY_CLIENT_SECRET")
      .flatMap { case (name, variable) => sys.env.get(variable).map(name -> _) }.toMap

  private def file(path: Path): Map[String, String] = {
    val properties = new Properties()
    try {
      val others = Files.getPosixFilePermissions(path).asScala.map(_.name).filterNot(_.startsWith("OWNER"))
      if (others.nonEmpty) {
        throw new FinalFailure(s"The credentials in $path are open to other users: chmod 600 $path")
      }
      val reader = Files.newBufferedReader(path)
      try properties.load(reader) finally reader.close()
    } catch {
      case failed: FinalFailure => throw failed
      case NonFatal(failed) => throw new FinalFailure(s"The file of credentials $path cannot be read: $failed")
    }
    properties.asScala.toMap
  }
}
