package org.apache.spark.sql.avro

import scala.util.control.NonFatal

import org.apache.avro.Schema
import org.apache.avro.generic.GenericDatumReader
import org.apache.avro.io.DecoderFactory
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{ExpectsInputTypes, Expression, UnaryExpression}
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback
import org.apache.spark.sql.catalyst.util.FailFastMode
import org.apache.spark.sql.types.{AbstractDataType, BinaryType, DataType, StructType}

/**
 * The class that the SQL function `from_avro` looks up by name.
 *
 * Spark ships the function, the conversion of schemas and the deserializer, but this class is in spark-avro, which the
 * registry does not have. As in spark-avro, unreadable bytes give a record of NULLs, or an error in mode FAILFAST.
 */
case class AvroDataToCatalyst(child: Expression, jsonFormatSchema: String, options: Map[String, String])
  extends UnaryExpression with ExpectsInputTypes with CodegenFallback {

  override def inputTypes: Seq[AbstractDataType] = Seq(BinaryType)
  override lazy val dataType: DataType = SchemaConverters.toSqlType(schema, options).dataType.asNullable
  override def nullable: Boolean = true
  override def prettyName: String = "from_avro"

  @transient private lazy val settings = AvroOptions(options)
  @transient private lazy val written = new Schema.Parser().setValidateDefaults(false).parse(jsonFormatSchema)
  @transient private lazy val schema = settings.schema.getOrElse(written)
  @transient private lazy val reader = new GenericDatumReader[Any](written, schema)
  @transient private lazy val deserializer = new AvroDeserializer(
    schema,
    dataType,
    settings.datetimeRebaseModeInRead,
    settings.useStableIdForUnionType,
    settings.stableIdPrefixForUnionType,
    settings.recursiveFieldMaxDepth)
  @transient private lazy val failFast = settings.parseMode == FailFastMode

  override protected def nullSafeEval(input: Any): Any = {
    val bytes = input.asInstanceOf[Array[Byte]]
    try {
      val decoder = DecoderFactory.get().binaryDecoder(bytes, null)
      deserializer.deserialize(reader.read(null, decoder)).orNull
    } catch {
      case NonFatal(_) if !failFast => unreadable
    }
  }

  private def unreadable: Any = dataType match {
    case struct: StructType => InternalRow.fromSeq(Seq.fill(struct.length)(null))
    case _ => null
  }

  override protected def withNewChildInternal(newChild: Expression): Expression = copy(child = newChild)
}
