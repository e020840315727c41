package ratify.flink

import java.time.Duration
import java.util

import org.apache.flink.configuration.{ConfigOption, ConfigOptions, MemorySize}
import org.apache.flink.streaming.api.datastream.{DataStream, DataStreamSink}
import org.apache.flink.table.api.ValidationException
import org.apache.flink.table.connector.{ChangelogMode, ProviderContext}
import org.apache.flink.table.connector.sink.{DataStreamSinkProvider, DynamicTableSink}
import org.apache.flink.table.data.RowData
import org.apache.flink.table.factories.{DynamicTableFactory, DynamicTableSinkFactory, FactoryUtil}
import org.apache.flink.table.types.logical.RowType
import org.apache.flink.types.RowKind

/** `CREATE TABLE … WITH ('connector' = 'ratify', …)`: the columns in Flink's SQL, the table in the catalog. */
final class SinkFactory extends DynamicTableSinkFactory {
  import SinkFactory._

  override def factoryIdentifier: String = "ratify"

  override def requiredOptions: util.Set[ConfigOption[_]] = util.Set.of(Endpoint)

  override def optionalOptions: util.Set[ConfigOption[_]] =
    util.Set.of(Table, Uid, CredentialsFile, FileSize, BufferSize, OpenPartitions, CommitTimeout)

  override def createDynamicTableSink(context: DynamicTableFactory.Context): DynamicTableSink = {
    val helper = FactoryUtil.createTableFactoryHelper(this, context)
    helper.validate()
    val options = helper.getOptions
    val named = options.getOptional(Table).map[Array[String]](_.split('.')).orElseGet { () =>
      val id = context.getObjectIdentifier
      Array(id.getCatalogName, id.getDatabaseName, id.getObjectName)
    }
    if (named.length != 3 || named.exists(_.isEmpty)) {
      throw new ValidationException(s"'${Table.key}' is catalog.schema.table, not '${named.mkString(".")}'")
    }
    val endpoint = options.get(Endpoint).replaceAll("/+$", "")
    val credentials = Option(options.getOptional(CredentialsFile).orElse(null))
    val address = TableAddress(endpoint, named(0), named(1), named(2), credentials)
    val uid = options.getOptional(Uid).orElse(s"ratify-${address.fullName}")
    val limits = WriterLimits(options.get(FileSize).getBytes, options.get(BufferSize).getBytes, options.get(OpenPartitions))
    val rows = context.getPhysicalRowDataType.getLogicalType.asInstanceOf[RowType]
    new TableSink(RatifySink(address, uid, rows, limits, Patience(address, options.get(CommitTimeout).toMillis)))
  }
}

object SinkFactory {
  private def option(name: String) = ConfigOptions.key(name)

  val Endpoint: ConfigOption[String] =
    option("endpoint").stringType.noDefaultValue.withDescription("URL of the Unity Catalog server.")
  val Table: ConfigOption[String] =
    option("table").stringType.noDefaultValue.withDescription("catalog.schema.table; by default the name in Flink's SQL.")
  val Uid: ConfigOption[String] =
    option("uid").stringType.noDefaultValue.withDescription("The sink's uid in its job; by default it names the table.")
  val CredentialsFile: ConfigOption[String] = option("credentials-file").stringType.noDefaultValue.withDescription(
    "A file, for its owner only, with token, or client-id and client-secret; by default the environment has UNITY_TOKEN, " +
      "or UNITY_CLIENT_ID and UNITY_CLIENT_SECRET.")
  val FileSize: ConfigOption[MemorySize] = option("file-size").memoryType.defaultValue(MemorySize.ofMebiBytes(64))
    .withDescription("Rows of one file, in memory, before they are compressed.")
  val BufferSize: ConfigOption[MemorySize] = option("buffer-size").memoryType.defaultValue(MemorySize.ofMebiBytes(128))
    .withDescription("Rows that one writer holds in memory.")
  val OpenPartitions: ConfigOption[Integer] =
    option("open-partitions").intType.defaultValue(1000).withDescription("Partitions of which one writer holds rows.")
  val CommitTimeout: ConfigOption[Duration] = option("commit-timeout").durationType.defaultValue(Duration.ofMinutes(10))
    .withDescription("How long a commit, or the first look at the table, is repeated before the job restarts.")
}

/** The sink in a plan: it appends. */
private[flink] final class TableSink(sink: RatifySink) extends DynamicTableSink {
  override def getChangelogMode(requested: ChangelogMode): ChangelogMode = {
    if (!requested.containsOnly(RowKind.INSERT)) {
      throw new ValidationException(
        s"${sink.address.fullName}: the query updates or deletes rows ($requested), and this sink appends only, because " +
          "Delta Kernel 4.4 has no commit that marks rows as deleted. Make the query append (a window, an interval join), " +
          "or append its changes to a table and MERGE them by Spark.")
    }
    ChangelogMode.insertOnly()
  }

  /** A provider of the sink alone could give it no uid, without which no other plan can restore its state. */
  override def getSinkRuntimeProvider(context: DynamicTableSink.Context): DynamicTableSink.SinkRuntimeProvider =
    new DataStreamSinkProvider {
      override def consumeDataStream(provider: ProviderContext, rows: DataStream[RowData]): DataStreamSink[_] =
        rows.sinkTo(sink).uid(sink.uid).name(sink.address.fullName)
    }

  override def copy(): DynamicTableSink = new TableSink(sink)

  override def asSummaryString(): String = s"ratify ${sink.address.fullName}"
}
