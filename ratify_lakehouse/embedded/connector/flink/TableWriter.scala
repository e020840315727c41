package ratify.flink

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.time.LocalDate
import java.util
import java.util.Base64

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.delta.kernel.{Operation, Transaction}
import io.delta.kernel.data.FilteredColumnarBatch
import io.delta.kernel.defaults.internal.json.JsonUtils
import io.delta.kernel.expressions.Literal
import io.delta.kernel.internal.util.Utils
import io.delta.kernel.types._
import io.delta.kernel.utils.CloseableIterator
import org.apache.flink.api.connector.sink2.{CommittingSinkWriter, SinkWriter}
import org.apache.flink.metrics.groups.SinkWriterMetricGroup
import org.apache.flink.table.data.RowData
import org.apache.flink.table.runtime.typeutils.RowDataSerializer
import org.apache.flink.table.types.logical.RowType
import org.apache.flink.types.RowKind

/** The most that a writer holds in memory: rows of one partition, of all, and how many partitions. */
final case class WriterLimits(fileBytes: Long, bufferBytes: Long, partitions: Int)

/**
 * Buffers rows by partition, and writes a buffer into a Parquet file when it is full or a checkpoint is due.
 *
 * Kernel's writer pulls the rows of a file, so an open file would be a thread with a queue. A buffer in Flink's binary
 * format has a known size instead, which bounds the memory however many partitions there are.
 */
final class TableWriter(
    table: CatalogTable, flink: RowType, limits: WriterLimits, patience: Patience, metrics: SinkWriterMetricGroup)
    extends CommittingSinkWriter[RowData, WrittenFiles] {

  private val opened = patience.repeat("the first look at the table")(table.open())
  private val engine = opened.engine
  private val name = table.address.fullName
  TableSchema.check(name, opened.snapshot, flink)
  private val transaction = opened.snapshot.buildUpdateTableTransaction(RatifySink.EngineInfo, Operation.WRITE).build(engine)
  private val state = transaction.getTransactionState(engine)
  private val schema = transaction.getSchema(engine)
  private val partitions = transaction.getPartitionColumns(engine).asScala.toSeq
  private val places = RowVectors.places(flink, schema)
  private val required = TableSchema.required(flink, schema).toArray
  private val serializer = new RowDataSerializer(flink)
  private val partitionFields = partitions.map { column =>
    val ordinal = schema.indexOf(column)
    (column, places(ordinal), schema.at(ordinal))
  }
  private val buffers = mutable.HashMap.empty[Seq[String], RowBuffer]
  private var buffered = 0L
  private val adds = ArrayBuffer.empty[String]

  override def write(row: RowData, context: SinkWriter.Context): Unit = {
    if (row.getRowKind != RowKind.INSERT) {
      throw new FinalFailure(s"$name: a row of the kind ${row.getRowKind.shortString}; this sink appends only")
    }
    required.foreach(_(row).foreach(violated))
    val copy = serializer.toBinaryRow(row).copy()
    val values = partitionFields.map { case (_, at, column) => PartitionValue.of(copy, at, flink, column, violated, refused) }
    val key = values.map(PartitionValue.text)
    val buffer = buffers.getOrElseUpdate(key, newBuffer(key, partitions.zip(values).toMap))
    buffer.rows += copy
    buffer.bytes += copy.getSizeInBytes
    buffered += copy.getSizeInBytes
    metrics.getNumRecordsSendCounter.inc()
    metrics.getNumBytesSendCounter.inc(copy.getSizeInBytes)
    if (buffer.bytes >= limits.fileBytes) close(buffer)
    else if (buffered >= limits.bufferBytes || buffers.size > limits.partitions) close(buffers.values.maxBy(_.bytes))
  }

  /** Rows stay in memory until the checkpoint asks for the files. */
  override def flush(endOfInput: Boolean): Unit = ()

  override def prepareCommit(): util.Collection[WrittenFiles] = {
    buffers.values.toSeq.foreach(close)
    if (adds.isEmpty) util.List.of()
    else {
      val files = WrittenFiles(opened.id, schema.toJson, partitions, TableSchema.fence(opened.snapshot), adds.toVector)
      adds.clear()
      util.List.of(files)
    }
  }

  override def close(): Unit = table.close()

  private def violated(column: String): Nothing =
    throw new FinalFailure(s"$name: the column $column is NOT NULL, and a row has NULL in it. The rows since the last " +
      "checkpoint were not committed.")

  private def refused(column: String, what: String): Nothing =
    throw new FinalFailure(s"$name, column $column: $what. Give such rows another value in the query, or leave them out, or " +
      "cluster the table by this column instead. The rows since the last checkpoint were not committed.")

  /** Kernel escapes a value, and that once more for its folder: `%` becomes `%2525`. */
  private def newBuffer(key: Seq[String], values: Map[String, Literal]): RowBuffer = {
    val target = Transaction.getWriteContext(engine, state, values.asJava).getTargetDirectory
    partitions.zip(target.stripSuffix("/").split('/').takeRight(partitions.size)).foreach { case (column, folder) =>
      if (folder.getBytes(UTF_8).length > TableWriter.MostBytes) {
        val size = String.valueOf(values(column).getValue).length
        refused(column, s"a text of $size characters, for which the name of a folder, of ${TableWriter.MostBytes} bytes at " +
          "most, has no room")
      }
    }
    new RowBuffer(key, values)
  }

  private def close(buffer: RowBuffer): Unit = {
    buffers.remove(buffer.key)
    buffered -= buffer.bytes
    try {
      val values = buffer.values.asJava
      val target = Transaction.getWriteContext(engine, state, values)
      val data = Transaction.transformLogicalData(engine, state, batches(buffer.rows), values)
      val files = engine.getParquetHandler.writeParquetFiles(target.getTargetDirectory, data, target.getStatisticsColumns)
      val actions = Transaction.generateAppendActions(engine, state, files, target)
      try while (actions.hasNext) adds += JsonUtils.rowToJson(actions.next()) finally actions.close()
    } catch {
      // Hadoop has an Error for what a local disk refuses.
      case NonFatal(failed) => throw new IOException(s"$name: a file could not be written: ${failed.getMessage}", failed)
    }
  }

  private def batches(rows: ArrayBuffer[RowData]): CloseableIterator[FilteredColumnarBatch] =
    Utils.toCloseableIterator(rows.grouped(TableWriter.BatchRows).map { some =>
      new FilteredColumnarBatch(RowVectors.batch(schema, places, flink, some.toArray), util.Optional.empty())
    }.asJava)
}

object TableWriter {
  private val BatchRows = 4096
  private val MostBytes = 255
}

/** Rows of one partition. */
private[flink] final class RowBuffer(val key: Seq[String], val values: Map[String, Literal]) {
  val rows: ArrayBuffer[RowData] = ArrayBuffer.empty
  var bytes = 0L
}

/**
 * A row's value in a partition column. Zero has no sign, as in Spark. A value that is another one there is refused, by the
 * rule of Ratify's `partition_values.py`.
 */
private[flink] object PartitionValue {
  private val HiveNull = "__HIVE_DEFAULT_PARTITION__"
  private val Dates = LocalDate.of(1, 1, 1).toEpochDay to LocalDate.of(9999, 12, 31).toEpochDay
  private val IsNull = "which is NULL in a partition column"

  def of(
      row: RowData, at: Int, types: RowType, column: StructField, violated: String => Nothing,
      refused: (String, String) => Nothing): Literal = {
    def checked[A](value: A)(wrong: A => Option[String]): A = {
      wrong(value).foreach(refused(column.getName, _))
      value
    }
    val delta = column.getDataType
    val vector = RowVectors.field(Array(row), at, types, delta)
    val value = if (vector.isNullAt(0)) None else delta match {
      case _: BooleanType => Some(Literal.ofBoolean(vector.getBoolean(0)))
      case _: ByteType => Some(Literal.ofByte(vector.getByte(0)))
      case _: ShortType => Some(Literal.ofShort(vector.getShort(0)))
      case _: IntegerType => Some(Literal.ofInt(vector.getInt(0)))
      case _: LongType => Some(Literal.ofLong(vector.getLong(0)))
      case _: FloatType => Some(Literal.ofFloat(vector.getFloat(0) + 0.0f))
      case _: DoubleType => Some(Literal.ofDouble(vector.getDouble(0) + 0.0d))
      case _: StringType => Some(Literal.ofString(checked(vector.getString(0))(unusable)))
      case _: BinaryType =>
        Some(Literal.ofBinary(checked(vector.getBinary(0))(bytes => Option.when(bytes.isEmpty)(s"no bytes, $IsNull"))))
      case _: DateType => Some(Literal.ofDate(checked(vector.getInt(0))(unusable)))
      case _: TimestampType => Some(Literal.ofTimestamp(vector.getLong(0)))
      case _: TimestampNTZType => Some(Literal.ofTimestampNtz(vector.getLong(0)))
      case decimal: DecimalType =>
        Some(Literal.ofDecimal(vector.getDecimal(0), decimal.getPrecision, decimal.getScale))
      case other => throw new FinalFailure(s"the partition column ${column.getName} is $other, which none may be")
    }
    value.getOrElse(if (column.isNullable) Literal.ofNull(delta) else violated(column.getName))
  }

  /** What is wrong with a text. */
  private def unusable(text: String): Option[String] =
    if (text.isEmpty) Some(s"an empty text, $IsNull") else Option.when(text == HiveNull)(s"$HiveNull, $IsNull")

  private def unusable(day: Int): Option[String] = Option.unless(Dates.contains(day.toLong))(
    s"${LocalDate.ofEpochDay(day.toLong)}, a date that not every engine reads there")

  /** A text that two values share only if they are equal. */
  def text(value: Literal): String = value.getValue match {
    case null => "n"
    case bytes: Array[Byte] => s"v${Base64.getEncoder.encodeToString(bytes)}"
    case other => s"v$other"
  }
}

/** A writer whose failures end the job where no repetition cures them. */
private[flink] final class EndingWriter(address: TableAddress, writer: TableWriter)
    extends CommittingSinkWriter[RowData, WrittenFiles] {
  override def write(row: RowData, context: SinkWriter.Context): Unit =
    FinalFailure.ending(address)(writer.write(row, context))
  override def flush(endOfInput: Boolean): Unit = writer.flush(endOfInput)
  override def prepareCommit(): util.Collection[WrittenFiles] = FinalFailure.ending(address)(writer.prepareCommit())
  override def close(): Unit = writer.close()
}
