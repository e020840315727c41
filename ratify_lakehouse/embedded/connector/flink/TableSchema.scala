package ratify.flink

import scala.jdk.CollectionConverters._

import io.delta.kernel.Snapshot
import io.delta.kernel.internal.types.DataTypeJsonSerDe
import io.delta.kernel.types._
import org.apache.flink.table.data.{ArrayData, RowData}
import org.apache.flink.table.types.logical.{ArrayType => FlinkArray, BigIntType, BooleanType => FlinkBoolean, CharType, DateType => FlinkDate, DecimalType => FlinkDecimal, DoubleType => FlinkDouble, FloatType => FlinkFloat, IntType, LocalZonedTimestampType, LogicalType, MapType => FlinkMap, RowType, SmallIntType, TimestampType => FlinkTimestamp, TinyIntType, VarBinaryType, VarCharType}

/** What a table asks of the rows and files that are added to it. */
object TableSchema {
  private val MappingMode = "delta.columnMapping.mode"
  private val Fence = "ratify.erased"
  // Delta counts microseconds.
  private val MostPrecise = 6

  /**
   * Checks that a table takes rows of this type. Columns are found by name; one that the rows lack is NULL.
   *
   * Kernel 4.4 writes no mapped columns and enforces no constraints, so such a table is refused.
   */
  def check(table: String, snapshot: Snapshot, flink: RowType): Unit = {
    def refuse(what: String): Nothing = throw new FinalFailure(s"$table: $what")
    requireUnmapped(table, snapshot)
    val constraints = snapshot.getTableProperties.keySet.asScala.filter(_.startsWith("delta.constraints."))
    if (constraints.nonEmpty) refuse(s"it has CHECK constraints (${constraints.mkString(", ")}), which this sink does not enforce")
    val delta = snapshot.getSchema
    val names = delta.fieldNames.asScala
    flink.getFieldNames.asScala.filterNot(name => names.exists(_.equalsIgnoreCase(name))).foreach { name =>
      refuse(s"it has no column $name; its columns are ${names.mkString(", ")}")
    }
    val repeated = flink.getFieldNames.asScala.groupBy(_.toLowerCase).values.filter(_.size > 1)
    if (repeated.nonEmpty) refuse(s"columns that differ by case only: ${repeated.flatten.mkString(", ")}")
    delta.fields.asScala.zip(RowVectors.places(flink, delta)).foreach {
      case (column, -1) if !column.isNullable =>
        refuse(s"the column ${column.getName} is NOT NULL, and the rows do not have it")
      case (_, -1) => ()
      case (column, at) =>
        mismatch(column.getName, column.getDataType, flink.getTypeAt(at)).foreach(refuse)
    }
  }

  /** Checks that files which were written for an earlier version may be added to this one. */
  def checkWritten(table: String, opened: OpenTable, files: WrittenFiles): Unit = {
    def refuse(what: String): Nothing = throw new FinalFailure(
      s"$table changed after rows for it were written, which a checkpoint holds: $what. Change it back, or start the job " +
        "without that checkpoint; its rows are then lost.")
    if (opened.id != files.tableId) refuse(s"it was dropped and created again (id ${files.tableId} is now ${opened.id})")
    if (fence(opened.snapshot) != files.fence) {
      throw new FinalFailure(s"$table: a data subject was erased after the job had begun, so that rows that it has read, " +
        "which a checkpoint holds, may have some of its. Nothing of them was committed. Start the job without that checkpoint, " +
        "once its inputs do not have the subject any more: a table of the kind FlinkSql by `full_refresh: true`.")
    }
    requireUnmapped(table, opened.snapshot)
    val now = opened.snapshot.getPartitionColumnNames.asScala.toSeq
    if (now != files.partitions) refuse(s"its partition columns were ${list(files.partitions)} and are now ${list(now)}")
    val before = DataTypeJsonSerDe.deserializeStructType(files.schema).fields.asScala.map(column => column.getName -> column).toMap
    val columns = opened.snapshot.getSchema.fields.asScala
    columns.foreach { column =>
      val name = column.getName
      before.get(name) match {
        case None if !column.isNullable => refuse(s"the column $name, which is NOT NULL, was added")
        case Some(was) if !column.isNullable && was.isNullable => refuse(s"the column $name became NOT NULL")
        case Some(was) if !was.getDataType.equivalent(column.getDataType) =>
          refuse(s"the column $name was ${was.getDataType} and is now ${column.getDataType}")
        case _ => ()
      }
    }
    before.keySet.diff(columns.map(_.getName).toSet).foreach(name => refuse(s"the column $name was dropped"))
  }

  /** The id of the last erasure that has fenced a table; empty if none has. */
  def fence(snapshot: Snapshot): String = snapshot.getTableProperties.getOrDefault(Fence, "")

  /** The checks of NOT NULL, each of a row, which give the column that is null against its declaration. */
  def required(flink: RowType, delta: StructType): Seq[RowData => Option[String]] =
    delta.fields.asScala.toSeq.zip(RowVectors.places(flink, delta)).collect {
      case (column, at) if at >= 0 => (column, at)
    }.flatMap { case (column, at) =>
      val getter = RowData.createFieldGetter(flink.getTypeAt(at), at)
      requiredValue(column.getName, column.getDataType, column.isNullable, flink.getTypeAt(at))
        .map(check => (row: RowData) => check(getter.getFieldOrNull(row)))
    }

  private type Check = Any => Option[String]

  private def requiredValue(path: String, delta: DataType, nullable: Boolean, flink: LogicalType): Option[Check] = {
    val inside: Option[Check] = (delta, flink) match {
      case (struct: StructType, row: RowType) =>
        val fields = struct.fields.asScala.toSeq.zip(RowVectors.places(row, struct)).flatMap {
          case (field, -1) if !field.isNullable => Some((_: Any) => Some(s"$path.${field.getName}"))
          case (_, -1) => None
          case (field, at) =>
            val getter = RowData.createFieldGetter(row.getTypeAt(at), at)
            requiredValue(s"$path.${field.getName}", field.getDataType, field.isNullable, row.getTypeAt(at))
              .map(check => (value: Any) => check(getter.getFieldOrNull(value.asInstanceOf[RowData])))
        }
        Option.when(fields.nonEmpty)(value => first(fields.iterator.map(_(value))))
      case (array: ArrayType, list: FlinkArray) =>
        elements(s"$path.element", array.getElementType, array.containsNull, list.getElementType)
      case (map: MapType, pairs: FlinkMap) =>
        val keys = elements(s"$path.key", map.getKeyType, false, pairs.getKeyType)
        val values = elements(s"$path.value", map.getValueType, map.isValueContainsNull, pairs.getValueType)
        val both = keys.map(check => (value: Any) => check(value.asInstanceOf[org.apache.flink.table.data.MapData].keyArray)) ++
          values.map(check => (value: Any) => check(value.asInstanceOf[org.apache.flink.table.data.MapData].valueArray))
        Option.when(both.nonEmpty)(value => first(both.iterator.map(_(value))))
      case _ => None
    }
    if (nullable) inside.map(check => (value: Any) => if (value == null) None else check(value))
    else Some((value: Any) => if (value == null) Some(path) else inside.flatMap(_(value)))
  }

  private def elements(path: String, delta: DataType, nullable: Boolean, flink: LogicalType): Option[Check] = {
    val getter = ArrayData.createElementGetter(flink)
    requiredValue(path, delta, nullable, flink).map { check => (value: Any) =>
      val array = value.asInstanceOf[ArrayData]
      first((0 until array.size).iterator.map(i => check(getter.getElementOrNull(array, i))))
    }
  }

  private def first(found: Iterator[Option[String]]): Option[String] = found.collectFirst { case Some(path) => path }

  private def requireUnmapped(table: String, snapshot: Snapshot): Unit = {
    val mode = snapshot.getTableProperties.getOrDefault(MappingMode, "none")
    if (mode != "none") {
      throw new FinalFailure(s"$table has mapped columns ($MappingMode = $mode), which Delta Kernel does not write: ALTER " +
        s"TABLE $table SET TBLPROPERTIES ('$MappingMode' = 'none')")
    }
  }

  private def mismatch(path: String, delta: DataType, flink: LogicalType): Option[String] = {
    val other = s"the column $path is $delta, and the rows have ${flink.asSummaryString}"
    (delta, flink) match {
      case (_: BooleanType, _: FlinkBoolean) | (_: ByteType, _: TinyIntType) | (_: ShortType, _: SmallIntType) |
          (_: IntegerType, _: IntType) | (_: LongType, _: BigIntType) | (_: FloatType, _: FlinkFloat) |
          (_: DoubleType, _: FlinkDouble) | (_: StringType, _: VarCharType | _: CharType) |
          (_: BinaryType, _: VarBinaryType) | (_: DateType, _: FlinkDate) => None
      case (_: TimestampType, at: LocalZonedTimestampType) if at.getPrecision <= MostPrecise => None
      case (_: TimestampNTZType, at: FlinkTimestamp) if at.getPrecision <= MostPrecise => None
      case (to: DecimalType, of: FlinkDecimal) if to.getPrecision == of.getPrecision && to.getScale == of.getScale => None
      case (array: ArrayType, list: FlinkArray) => mismatch(s"$path.element", array.getElementType, list.getElementType)
      case (map: MapType, pairs: FlinkMap) =>
        mismatch(s"$path.key", map.getKeyType, pairs.getKeyType)
          .orElse(mismatch(s"$path.value", map.getValueType, pairs.getValueType))
      case (struct: StructType, row: RowType) =>
        val names = struct.fieldNames.asScala
        row.getFieldNames.asScala.find(name => !names.exists(_.equalsIgnoreCase(name))).map(name => s"$path has no field $name")
          .orElse(first(struct.fields.asScala.iterator.zip(RowVectors.places(row, struct).iterator).map {
            case (field, -1) => Option.when(!field.isNullable)(s"the rows lack $path.${field.getName}, which is NOT NULL")
            case (field, at) => mismatch(s"$path.${field.getName}", field.getDataType, row.getTypeAt(at))
          }))
      case _ => Some(other)
    }
  }

  private def list(names: Seq[String]): String = names.mkString("[", ", ", "]")
}
