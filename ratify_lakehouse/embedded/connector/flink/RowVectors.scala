package ratify.flink

import java.math.BigDecimal

import scala.jdk.CollectionConverters._

import io.delta.kernel.data.{ArrayValue, ColumnVector, ColumnarBatch, MapValue}
import io.delta.kernel.types._
import org.apache.flink.table.data.{ArrayData, DecimalData, MapData, RowData, TimestampData}
import org.apache.flink.table.types.logical.{ArrayType => FlinkArray, DecimalType => FlinkDecimal, LogicalType, MapType => FlinkMap, RowType}
import org.apache.flink.table.types.logical.utils.LogicalTypeChecks

/** Flink's rows as the columns that Delta's Parquet writer reads; no value is copied. */
final class RowBatch(schema: StructType, columns: Vector[ColumnVector], size: Int) extends ColumnarBatch {
  override def getSchema: StructType = schema
  override def getSize: Int = size
  override def getColumnVector(ordinal: Int): ColumnVector = columns(ordinal)

  // Kernel takes partition columns out, and adds those of row tracking.
  override def withDeletedColumnAt(ordinal: Int): ColumnarBatch =
    new RowBatch(new StructType(remaining(schema.fields.asScala.toVector, ordinal).asJava), remaining(columns, ordinal), size)
  override def withNewColumn(ordinal: Int, field: StructField, column: ColumnVector): ColumnarBatch = {
    val fields = schema.fields.asScala.toVector.patch(ordinal, Seq(field), 0)
    new RowBatch(new StructType(fields.asJava), columns.patch(ordinal, Seq(column), 0), size)
  }
  override def withNewSchema(renamed: StructType): ColumnarBatch = new RowBatch(renamed, columns, size)

  private def remaining[A](all: Vector[A], ordinal: Int): Vector[A] = all.patch(ordinal, Nil, 1)
}

object RowVectors {
  /** `places` has the place of each of the table's columns in Flink's row, -1 where the row has none. */
  def batch(schema: StructType, places: Array[Int], types: RowType, rows: Array[RowData]): RowBatch = {
    val columns = schema.fields.asScala.toVector.zip(places).map { case (column, at) => field(rows, at, types, column.getDataType) }
    new RowBatch(schema, columns, rows.length)
  }

  def field(rows: Array[RowData], at: Int, types: RowType, delta: DataType): ColumnVector =
    if (at < 0) new NullVector(delta, rows.length) else vector(new Field(rows, at), types.getTypeAt(at), delta)

  private[flink] def vector(cells: Cells, flink: LogicalType, delta: DataType): ColumnVector = (flink, delta) match {
    case (row: RowType, struct: StructType) => new StructVector(cells, row, struct)
    case _ => new CellVector(cells, flink, delta)
  }

  /** The places in Flink's row of the table's columns, by name as Delta compares names; -1 where there is none. */
  def places(flink: RowType, delta: StructType): Array[Int] = {
    val names = flink.getFieldNames.asScala
    delta.fieldNames.asScala.map(name => names.indexWhere(_.equalsIgnoreCase(name))).toArray
  }
}

/** A sequence of values of one type: a field of many rows, or the elements of an array. */
private[flink] sealed trait Cells {
  def size: Int
  def isNull(i: Int): Boolean
  def boolean(i: Int): Boolean
  def byte(i: Int): Byte
  def short(i: Int): Short
  def int(i: Int): Int
  def long(i: Int): Long
  def float(i: Int): Float
  def double(i: Int): Double
  def string(i: Int): String
  def binary(i: Int): Array[Byte]
  def decimal(i: Int, precision: Int, scale: Int): DecimalData
  def timestamp(i: Int, precision: Int): TimestampData
  def array(i: Int): ArrayData
  def map(i: Int): MapData
  def row(i: Int, fields: Int): RowData
}

/** A row may be null: the struct that it is a field of was. */
private[flink] final class Field(rows: Array[RowData], at: Int) extends Cells {
  override def size: Int = rows.length
  override def isNull(i: Int): Boolean = rows(i) == null || rows(i).isNullAt(at)
  override def boolean(i: Int): Boolean = rows(i).getBoolean(at)
  override def byte(i: Int): Byte = rows(i).getByte(at)
  override def short(i: Int): Short = rows(i).getShort(at)
  override def int(i: Int): Int = rows(i).getInt(at)
  override def long(i: Int): Long = rows(i).getLong(at)
  override def float(i: Int): Float = rows(i).getFloat(at)
  override def double(i: Int): Double = rows(i).getDouble(at)
  override def string(i: Int): String = rows(i).getString(at).toString
  override def binary(i: Int): Array[Byte] = rows(i).getBinary(at)
  override def decimal(i: Int, precision: Int, scale: Int): DecimalData = rows(i).getDecimal(at, precision, scale)
  override def timestamp(i: Int, precision: Int): TimestampData = rows(i).getTimestamp(at, precision)
  override def array(i: Int): ArrayData = rows(i).getArray(at)
  override def map(i: Int): MapData = rows(i).getMap(at)
  override def row(i: Int, fields: Int): RowData = rows(i).getRow(at, fields)
}

private[flink] final class Elements(values: ArrayData) extends Cells {
  override def size: Int = values.size
  override def isNull(i: Int): Boolean = values.isNullAt(i)
  override def boolean(i: Int): Boolean = values.getBoolean(i)
  override def byte(i: Int): Byte = values.getByte(i)
  override def short(i: Int): Short = values.getShort(i)
  override def int(i: Int): Int = values.getInt(i)
  override def long(i: Int): Long = values.getLong(i)
  override def float(i: Int): Float = values.getFloat(i)
  override def double(i: Int): Double = values.getDouble(i)
  override def string(i: Int): String = values.getString(i).toString
  override def binary(i: Int): Array[Byte] = values.getBinary(i)
  override def decimal(i: Int, precision: Int, scale: Int): DecimalData = values.getDecimal(i, precision, scale)
  override def timestamp(i: Int, precision: Int): TimestampData = values.getTimestamp(i, precision)
  override def array(i: Int): ArrayData = values.getArray(i)
  override def map(i: Int): MapData = values.getMap(i)
  override def row(i: Int, fields: Int): RowData = values.getRow(i, fields)
}

private[flink] sealed abstract class CellsVector(delta: DataType, size: Int) extends ColumnVector {
  override def getDataType: DataType = delta
  override def getSize: Int = size
  override def close(): Unit = ()
}

private[flink] final class NullVector(delta: DataType, size: Int) extends CellsVector(delta, size) {
  override def isNullAt(i: Int): Boolean = true
  override def getChild(ordinal: Int): ColumnVector = delta match {
    case struct: StructType => new NullVector(struct.at(ordinal).getDataType, size)
    case other => throw new IllegalStateException(s"$other has no fields")
  }
}

private[flink] final class StructVector(cells: Cells, flink: RowType, delta: StructType) extends CellsVector(delta, cells.size) {
  private lazy val rows =
    Array.tabulate(cells.size)(i => if (cells.isNull(i)) null else cells.row(i, flink.getFieldCount))
  private lazy val places = RowVectors.places(flink, delta)

  override def isNullAt(i: Int): Boolean = cells.isNull(i)
  override def getChild(ordinal: Int): ColumnVector =
    RowVectors.field(rows, places(ordinal), flink, delta.at(ordinal).getDataType)
}

private[flink] final class CellVector(cells: Cells, flink: LogicalType, delta: DataType) extends CellsVector(delta, cells.size) {
  override def isNullAt(i: Int): Boolean = cells.isNull(i)
  override def getBoolean(i: Int): Boolean = cells.boolean(i)
  override def getByte(i: Int): Byte = cells.byte(i)
  override def getShort(i: Int): Short = cells.short(i)
  override def getInt(i: Int): Int = cells.int(i)
  override def getFloat(i: Int): Float = cells.float(i)
  override def getDouble(i: Int): Double = cells.double(i)
  override def getString(i: Int): String = cells.string(i)
  override def getBinary(i: Int): Array[Byte] = cells.binary(i)

  /** A bigint, or a timestamp in microseconds. */
  override def getLong(i: Int): Long = delta match {
    case _: TimestampType | _: TimestampNTZType =>
      val at = cells.timestamp(i, LogicalTypeChecks.getPrecision(flink))
      Math.addExact(Math.multiplyExact(at.getMillisecond, 1000L), at.getNanoOfMillisecond / 1000L)
    case _ => cells.long(i)
  }

  override def getDecimal(i: Int): BigDecimal = {
    val decimal = flink.asInstanceOf[FlinkDecimal]
    cells.decimal(i, decimal.getPrecision, decimal.getScale).toBigDecimal
  }

  override def getArray(i: Int): ArrayValue = {
    val elements = new Elements(cells.array(i))
    val (inFlink, inDelta) = (flink.asInstanceOf[FlinkArray].getElementType, delta.asInstanceOf[ArrayType].getElementType)
    new ArrayValue {
      override def getSize: Int = elements.size
      override def getElements: ColumnVector = RowVectors.vector(elements, inFlink, inDelta)
    }
  }

  override def getMap(i: Int): MapValue = {
    val map = cells.map(i)
    val (inFlink, inDelta) = (flink.asInstanceOf[FlinkMap], delta.asInstanceOf[MapType])
    new MapValue {
      override def getSize: Int = map.size
      override def getKeys: ColumnVector =
        RowVectors.vector(new Elements(map.keyArray), inFlink.getKeyType, inDelta.getKeyType)
      override def getValues: ColumnVector =
        RowVectors.vector(new Elements(map.valueArray), inFlink.getValueType, inDelta.getValueType)
    }
  }
}
