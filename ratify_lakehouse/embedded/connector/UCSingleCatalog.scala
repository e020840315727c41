package io.unitycatalog.spark

import java.util

import scala.jdk.CollectionConverters._

import io.delta.storage.commit.uccommitcoordinator.UCConfigUtils
import io.unitycatalog.client.{ApiClientBuilder, ApiException}
import io.unitycatalog.client.api.{SchemasApi, TablesApi}
import io.unitycatalog.client.auth.TokenProvider
import io.unitycatalog.client.delta.api.DeltaTemporaryCredentialsApi
import io.unitycatalog.client.delta.model.DeltaCredentialOperation
import io.unitycatalog.client.model.{ColumnInfo, ColumnTypeName, CreateSchema, CreateTable, DataSourceFormat, TableType, UpdateSchema}
import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.catalyst.analysis.{NamespaceAlreadyExistsException, NoSuchFunctionException, NoSuchNamespaceException, NoSuchTableException, TableAlreadyExistsException}
import org.apache.spark.sql.connector.catalog._
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.delta.catalog.DeltaCatalog
import org.apache.spark.sql.delta.coordinatedcommits.RefusedCommits
import org.apache.spark.sql.types._
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A Spark catalog backed by a Unity Catalog server: Delta's own catalog, over the names of that server.
 *
 * Delta carries the whole client of the server's `delta/v1` API (staging, load, commit, credentials), and uses it when
 * the Spark catalog's class has exactly this name and its delegate's class lives under `io.unitycatalog.`. What Delta
 * leaves to the delegate is: schemas, listings, DROP, and the registration of external tables.
 *
 * Options are those that Delta itself reads under `spark.sql.catalog.<name>.`: `uri`, and `token` or `auth.*`.
 */
class UCSingleCatalog extends DeltaCatalog {
  private var names: UCNames = _

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    RefusedCommits.install()
    // Keys keep their case: the OAuth options (`auth.oauth.clientId`) are looked up exactly.
    names = new UCNames(name, options.asCaseSensitiveMap())
    setDelegateCatalog(names)
    super.initialize(name, options)
  }

  /** Loads a table that a statement writes to. A principal that may only read is refused here, before files are written. */
  override def loadTable(ident: Identifier, privileges: util.Set[TableWritePrivilege]): Table = {
    names.requireWrite(ident)
    loadTable(ident)
  }
}

/** The schemas and table names of one Unity Catalog catalog, over the server's 2.1 API. */
private[spark] class UCNames(catalog: String, options: util.Map[String, String])
    extends TableCatalog with SupportsNamespaces with FunctionCatalog {

  private val client = ApiClientBuilder.create()
    .uri(UCConfigUtils.extractUri(options))
    .tokenProvider(TokenProvider.create(UCConfigUtils.extractAuthConfig(options)))
    .addAppVersion("Spark", SPARK_VERSION)
    .build()
  private val schemas = new SchemasApi(client)
  private val tables = new TablesApi(client)
  private val credentials = new DeltaTemporaryCredentialsApi(client)

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = ()

  override def name(): String = catalog

  // ---- tables

  override def listTables(namespace: Array[String]): Array[Identifier] =
    pages { token =>
      val page = schemaOr404(namespace)(tables.listTables(catalog, schemaOf(namespace), null, token))
      (page.getTables.asScala.map(table => Identifier.of(namespace, table.getName)), page.getNextPageToken)
    }.toArray

  override def tableExists(ident: Identifier): Boolean = found(getTable(ident)).isDefined

  /** Delta asks for write credentials and falls back to read credentials; on file: storage both are empty. */
  def requireWrite(ident: Identifier): Unit =
    try credentials.getTableCredentials(
      DeltaCredentialOperation.READ_WRITE, catalog, schemaOf(ident.namespace), ident.name)
    catch { case e: ApiException if e.getCode != 403 => () }

  /** Reached only for a table that Delta's client has refused, because its format is not Delta. */
  override def loadTable(ident: Identifier): Table = {
    val table = found(getTable(ident)).getOrElse(throw new NoSuchTableException(ident))
    throw new UnsupportedOperationException(
      s"${table.getCatalogName}.${table.getSchemaName}.${table.getName} is a ${table.getDataSourceFormat} table: " +
        "this connector serves Delta tables only. Read its files by path, or use the published connector " +
        "(UNITY_SPARK_PACKAGE).")
  }

  /** Registers an external table; managed ones are created by Delta through the `delta/v1` API. */
  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table = {
    val location = properties.get(TableCatalog.PROP_LOCATION)
    if (location == null || !"delta".equalsIgnoreCase(properties.get(TableCatalog.PROP_PROVIDER))) refuse(ident)
    val request = new CreateTable()
      .catalogName(catalog).schemaName(schemaOf(ident.namespace)).name(ident.name)
      .tableType(TableType.EXTERNAL).dataSourceFormat(DataSourceFormat.DELTA).storageLocation(location)
      .columns(UCNames.columns(columns, partitions).asJava)
      .comment(properties.get(TableCatalog.PROP_COMMENT))
      .properties(UCNames.unreserved(properties))
    try tables.createTable(request)
    catch { case e: ApiException if e.getCode == 409 => throw new TableAlreadyExistsException(ident) }
    // Delta loads the table itself right after: nothing reads this value.
    null
  }

  /** Delta calls this for tables of other formats only. */
  override def createTable(
      ident: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]): Table = refuse(ident)

  private def refuse(ident: Identifier): Nothing =
    throw new UnsupportedOperationException(
      s"${fullName(ident)} cannot be created: this connector creates managed Delta tables and, with LOCATION, external " +
        "Delta tables. Write USING DELTA.")

  override def alterTable(ident: Identifier, changes: TableChange*): Table =
    throw new UnsupportedOperationException(s"ALTER TABLE is not supported on $ident: it is not a Delta table")

  override def dropTable(ident: Identifier): Boolean = found(tables.deleteTable(fullName(ident))).isDefined

  override def renameTable(from: Identifier, to: Identifier): Unit =
    throw new UnsupportedOperationException("Unity Catalog has no call that renames a table: copy it with CREATE TABLE AS SELECT")

  private def getTable(ident: Identifier) = tables.getTable(fullName(ident), null, null)

  // ---- schemas

  override def listNamespaces(): Array[Array[String]] =
    pages { token =>
      val page = schemas.listSchemas(catalog, null, token)
      (page.getSchemas.asScala.map(schema => Array(schema.getName)), page.getNextPageToken)
    }.toArray

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    if (namespace.isEmpty) listNamespaces() else { loadNamespaceMetadata(namespace); Array.empty }

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    val schema = schemaOr404(namespace)(schemas.getSchema(s"$catalog.${schemaOf(namespace)}"))
    val metadata = new util.HashMap[String, String](Option(schema.getProperties).getOrElse(util.Map.of()))
    Option(schema.getComment).foreach(metadata.put(SupportsNamespaces.PROP_COMMENT, _))
    Option(schema.getOwner).foreach(metadata.put(SupportsNamespaces.PROP_OWNER, _))
    metadata
  }

  override def createNamespace(namespace: Array[String], metadata: util.Map[String, String]): Unit = {
    if (metadata.containsKey(SupportsNamespaces.PROP_LOCATION)) {
      throw new UnsupportedOperationException("CREATE SCHEMA … LOCATION is not supported: the catalog places its tables")
    }
    val request = new CreateSchema().catalogName(catalog).name(schemaOf(namespace))
      .comment(metadata.get(SupportsNamespaces.PROP_COMMENT))
      .properties(UCNames.unreserved(metadata))
    try schemas.createSchema(request)
    catch {
      // Spark does not ask first: for IF NOT EXISTS it catches this exception. The reference server answers 400.
      case e: ApiException if e.getCode == 409 || String.valueOf(e.getResponseBody).contains("ALREADY_EXISTS") =>
        throw new NamespaceAlreadyExistsException(namespace)
    }
  }

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit = {
    val metadata = new util.HashMap[String, String](loadNamespaceMetadata(namespace))
    changes.foreach {
      case set: NamespaceChange.SetProperty => metadata.put(set.property, set.value)
      case remove: NamespaceChange.RemoveProperty => metadata.remove(remove.property)
      case other => throw new UnsupportedOperationException(s"ALTER SCHEMA: $other is not supported")
    }
    schemas.updateSchema(s"$catalog.${schemaOf(namespace)}", new UpdateSchema()
      .comment(metadata.get(SupportsNamespaces.PROP_COMMENT))
      .properties(UCNames.unreserved(metadata)))
  }

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    found(schemas.deleteSchema(s"$catalog.${schemaOf(namespace)}", cascade)).isDefined

  // ---- functions: none, but Spark asks the current catalog for any name that is not built in

  override def listFunctions(namespace: Array[String]): Array[Identifier] = Array.empty

  override def loadFunction(ident: Identifier): UnboundFunction = throw new NoSuchFunctionException(ident)

  // ---- shared

  private def schemaOf(namespace: Array[String]): String = namespace match {
    case Array(schema) => schema
    case _ => throw new NoSuchNamespaceException(namespace)
  }

  private def fullName(ident: Identifier): String = s"$catalog.${schemaOf(ident.namespace)}.${ident.name}"

  private def found[A](call: => A): Option[A] =
    try Some(call) catch { case e: ApiException if e.getCode == 404 => None }

  private def schemaOr404[A](namespace: Array[String])(call: => A): A =
    found(call).getOrElse(throw new NoSuchNamespaceException(namespace))

  private def pages[A](page: String => (Iterable[A], String)): Iterator[A] =
    Iterator.unfold(Option("")) { at =>
      at.map(token => page(if (token.isEmpty) null else token)).map { case (items, next) =>
        (items, Option(next).filter(_.nonEmpty))
      }
    }.flatten
}

private[spark] object UCNames {
  /** Spark passes these beside the user's properties; the catalog has a field for each. */
  private val reserved = Set(
    TableCatalog.PROP_COMMENT, TableCatalog.PROP_COLLATION, TableCatalog.PROP_LOCATION, TableCatalog.PROP_PROVIDER,
    TableCatalog.PROP_EXTERNAL, TableCatalog.PROP_OWNER, TableCatalog.PROP_IS_MANAGED_LOCATION)

  def unreserved(properties: util.Map[String, String]): util.Map[String, String] =
    properties.asScala.filterNot { case (key, _) => reserved(key) || key.startsWith(TableCatalog.OPTION_PREFIX) }.asJava

  def columns(columns: Array[Column], partitions: Array[Transform]): Seq[ColumnInfo] = {
    val partitionNames = partitions.toSeq.flatMap(_.references.toSeq).map(_.fieldNames.mkString("."))
    columns.toSeq.zipWithIndex.map { case (column, position) =>
      val info = new ColumnInfo().name(column.name).position(position).nullable(column.nullable).comment(column.comment)
        .typeText(column.dataType.catalogString).typeName(typeName(column.dataType))
        .typeJson(fieldJson(column))
      partitionNames.indexOf(column.name) match {
        case -1 => info
        case index => info.partitionIndex(index)
      }
    }
  }

  /** The Delta schema's JSON of one field: Spark writes it only for a whole struct. */
  private def fieldJson(column: Column): String = {
    val field = StructField(column.name, column.dataType, column.nullable)
    val struct = StructType(Seq(Option(column.comment).fold(field)(field.withComment)))
    struct.json.stripPrefix("""{"type":"struct","fields":[""").stripSuffix("]}")
  }

  private def typeName(dataType: DataType): ColumnTypeName = dataType match {
    case _: IntegerType => ColumnTypeName.INT
    case _: LongType => ColumnTypeName.LONG
    case _: CharType => ColumnTypeName.CHAR
    case _: StringType | _: VarcharType => ColumnTypeName.STRING
    case _: DecimalType => ColumnTypeName.DECIMAL
    case _: DayTimeIntervalType | _: YearMonthIntervalType => ColumnTypeName.INTERVAL
    case other => ColumnTypeName.fromValue(other.typeName.toUpperCase(util.Locale.ROOT))
  }
}
