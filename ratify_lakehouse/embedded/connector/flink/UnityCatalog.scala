package ratify.flink

import java.util

import scala.jdk.CollectionConverters._

import io.delta.kernel.types._
import io.unitycatalog.client.{ApiClientBuilder, ApiException}
import io.unitycatalog.client.api.{SchemasApi, TablesApi}
import io.unitycatalog.client.auth.TokenProvider
import org.apache.flink.configuration.{ConfigOption, ConfigOptions}
import org.apache.flink.table.api.{DataTypes, Schema}
import org.apache.flink.table.catalog.{Catalog, CatalogBaseTable, CatalogDatabase, CatalogDatabaseImpl, GenericInMemoryCatalog, ObjectPath}
import org.apache.flink.table.catalog.{CatalogTable => FlinkCatalogTable}
import org.apache.flink.table.catalog.exceptions.{CatalogException, DatabaseNotExistException, TableNotExistException}
import org.apache.flink.table.factories.{CatalogFactory, FactoryUtil}
import org.apache.flink.table.types.{DataType => FlinkType}

/** `CREATE CATALOG … WITH ('type' = 'ratify', …)`: the schemas and tables of a catalog of Unity Catalog. */
final class UnityCatalogFactory extends CatalogFactory {
  import UnityCatalogFactory._

  override def factoryIdentifier: String = "ratify"

  override def requiredOptions: util.Set[ConfigOption[_]] = util.Set.of(SinkFactory.Endpoint)

  override def optionalOptions: util.Set[ConfigOption[_]] =
    util.Set.of(CatalogName, SinkFactory.CredentialsFile, DefaultDatabase)

  override def createCatalog(context: CatalogFactory.Context): Catalog = {
    val helper = FactoryUtil.createCatalogFactoryHelper(this, context)
    helper.validate()
    val options = helper.getOptions
    val endpoint = options.get(SinkFactory.Endpoint).replaceAll("/+$", "")
    val credentials = Option(options.getOptional(SinkFactory.CredentialsFile).orElse(null))
    val name = options.getOptional(CatalogName).orElse(context.getName)
    new UnityCatalog(context.getName, options.get(DefaultDatabase), TableAddress(endpoint, name, "", "", credentials))
  }
}

object UnityCatalogFactory {
  val CatalogName: ConfigOption[String] = ConfigOptions.key("catalog").stringType.noDefaultValue
    .withDescription("The catalog's name in Unity Catalog; by default its name in Flink's SQL.")
  val DefaultDatabase: ConfigOption[String] = ConfigOptions.key("default-database").stringType.defaultValue("default")
    .withDescription("The schema of tables that are named without one.")
}

/**
 * The schemas of a catalog are Flink's databases, and its Delta tables are tables of the sink, with their declared columns.
 *
 * Nothing is created, altered or dropped here: who may do that, and how, is for the engines that manage tables. Temporary
 * tables, views and functions are Flink's own. The catalog keeps no secret: `address` names where each JVM finds it.
 */
final class UnityCatalog(name: String, database: String, address: TableAddress)
    extends GenericInMemoryCatalog(name, database) {
  private val MostOnOnePage: Integer = 100

  override def listDatabases(): util.List[String] = asked {
    pages { page =>
      val found = schemas.listSchemas(address.catalog, MostOnOnePage, page)
      (found.getSchemas.asScala.map(_.getName).toSeq, found.getNextPageToken)
    }
  }

  override def databaseExists(database: String): Boolean =
    asked(found(schemas.getSchema(s"${address.catalog}.$database")).nonEmpty)

  override def getDatabase(database: String): CatalogDatabase =
    asked(found(schemas.getSchema(s"${address.catalog}.$database"))).map { schema =>
      new CatalogDatabaseImpl(new util.HashMap[String, String](), schema.getComment)
    }.getOrElse(throw new DatabaseNotExistException(getName, database))

  override def listTables(database: String): util.List[String] = {
    if (!databaseExists(database)) throw new DatabaseNotExistException(getName, database)
    asked {
      pages { page =>
        val found = tables.listTables(address.catalog, database, MostOnOnePage, page)
        (found.getTables.asScala.map(_.getName).toSeq, found.getNextPageToken)
      }
    }
  }

  override def listViews(database: String): util.List[String] = new util.ArrayList[String]()

  override def tableExists(path: ObjectPath): Boolean = asked(found(tables.getTable(named(path), false, false)).nonEmpty)

  override def getTable(path: ObjectPath): CatalogBaseTable = {
    val info = asked(found(tables.getTable(named(path), false, false)))
      .getOrElse(throw new TableNotExistException(getName, path))
    val table = address.copy(schema = path.getDatabaseName, table = path.getObjectName)
    val opened = new CatalogTable(table)
    val snapshot =
      try opened.open().snapshot catch {
        case failed: Exception => throw new CatalogException(s"${table.fullName} cannot be read: ${failed.getMessage}", failed)
      } finally opened.close()
    val columns = Schema.newBuilder()
    snapshot.getSchema.fields.asScala.foreach { column =>
      columns.column(column.getName, UnityCatalog.flinkType(column.getDataType, column.isNullable))
    }
    val options = Map(
      "connector" -> "ratify",
      SinkFactory.Endpoint.key -> address.endpoint,
      SinkFactory.Table.key -> table.fullName
    ) ++ address.credentials.map(SinkFactory.CredentialsFile.key -> _)
    FlinkCatalogTable.newBuilder()
      .schema(columns.build())
      .comment(Option(info.getComment).getOrElse(""))
      .partitionKeys(snapshot.getPartitionColumnNames)
      .options(options.asJava)
      .build()
  }

  override def createDatabase(name: String, database: CatalogDatabase, ignoreIfExists: Boolean): Unit =
    if (getName != null && name != getDefaultDatabase) refuse(s"schema $name")

  override def dropDatabase(name: String, ignoreIfNotExists: Boolean, cascade: Boolean): Unit = refuse(s"schema $name")

  override def alterDatabase(name: String, database: CatalogDatabase, ignore: Boolean): Unit = refuse(s"schema $name")

  override def createTable(path: ObjectPath, table: CatalogBaseTable, ignoreIfExists: Boolean): Unit = refuse(named(path))

  override def alterTable(path: ObjectPath, table: CatalogBaseTable, ignoreIfNotExists: Boolean): Unit = refuse(named(path))

  override def dropTable(path: ObjectPath, ignoreIfNotExists: Boolean): Unit = refuse(named(path))

  override def renameTable(path: ObjectPath, name: String, ignoreIfNotExists: Boolean): Unit = refuse(named(path))

  private def named(path: ObjectPath) = s"${address.catalog}.${path.getDatabaseName}.${path.getObjectName}"

  private def refuse(what: String): Nothing = throw new CatalogException(
    s"$what: Flink neither creates nor alters nor drops what is in Unity Catalog. Use Spark or the catalog's own API; " +
      "CREATE TEMPORARY TABLE is Flink's own.")

  private def pages(page: String => (Seq[String], String)): util.List[String] =
    Iterator.unfold(Option("")) {
      case None => None
      case Some(token) =>
        val (names, next) = page(if (token.isEmpty) null else token)
        Some(names -> Option(next).filter(_.nonEmpty))
    }.flatten.toSeq.asJava

  /** What the catalog answers; None where it has no such thing. */
  private def found[T](answer: => T): Option[T] =
    try Some(answer) catch { case missing: ApiException if missing.getCode == 404 => None }

  private def asked[T](answer: => T): T =
    try answer catch {
      case failed: ApiException =>
        throw new CatalogException(s"The catalog ${address.endpoint} answered ${failed.getCode}: ${failed.getMessage}", failed)
    }

  private lazy val client = {
    val auth = Credentials.read(address).collect { case (key, value) if key.startsWith("auth.") => key.drop(5) -> value }
    ApiClientBuilder.create().uri(address.endpoint).tokenProvider(TokenProvider.create(auth.asJava)).build()
  }

  private def schemas = new SchemasApi(client)

  private def tables = new TablesApi(client)
}

object UnityCatalog {
  // Delta counts microseconds.
  private val MostPrecise = 6

  /** The type of Flink's SQL that holds the values of one of Delta's. */
  def flinkType(delta: DataType, nullable: Boolean): FlinkType = {
    val found = delta match {
      case BooleanType.BOOLEAN => DataTypes.BOOLEAN
      case ByteType.BYTE => DataTypes.TINYINT
      case ShortType.SHORT => DataTypes.SMALLINT
      case IntegerType.INTEGER => DataTypes.INT
      case LongType.LONG => DataTypes.BIGINT
      case FloatType.FLOAT => DataTypes.FLOAT
      case DoubleType.DOUBLE => DataTypes.DOUBLE
      case BinaryType.BINARY => DataTypes.BYTES
      case DateType.DATE => DataTypes.DATE
      case TimestampType.TIMESTAMP => DataTypes.TIMESTAMP_LTZ(MostPrecise)
      case TimestampNTZType.TIMESTAMP_NTZ => DataTypes.TIMESTAMP(MostPrecise)
      case decimal: DecimalType => DataTypes.DECIMAL(decimal.getPrecision, decimal.getScale)
      case _: StringType => DataTypes.STRING
      case list: ArrayType => DataTypes.ARRAY(flinkType(list.getElementType, list.containsNull))
      case map: MapType =>
        DataTypes.MAP(flinkType(map.getKeyType, nullable = false), flinkType(map.getValueType, map.isValueContainsNull))
      case struct: StructType =>
        DataTypes.ROW(struct.fields.asScala.map { field =>
          DataTypes.FIELD(field.getName, flinkType(field.getDataType, field.isNullable))
        }.toSeq: _*)
      case other => throw new CatalogException(s"Flink has no type for $other")
    }
    if (nullable) found.nullable() else found.notNull()
  }
}
