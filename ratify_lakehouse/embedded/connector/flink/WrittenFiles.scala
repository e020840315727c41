package ratify.flink

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, IOException}
import java.nio.charset.StandardCharsets.UTF_8

import org.apache.flink.core.io.SimpleVersionedSerializer

/**
 * Parquet files that one writer has closed, as Delta's `add` actions in JSON, with what has to be true of a table that
 * they are added to: its id, the columns (a Delta schema in JSON) and partition columns that they were written for, and
 * the fence of the last erasure when the writer began, before it was given any row.
 */
final case class WrittenFiles(tableId: String, schema: String, partitions: Seq[String], fence: String, adds: Seq[String])

/**
 * What one checkpoint adds to the table, in one commit.
 *
 * Delta's `txn` action (`appId`, `version`) makes it exactly once. The app id is the sink's uid and the job's id, because
 * the checkpoints of a new job begin at 1 again; the committable carries it, because the job that restores a committable
 * is another one than the job that made it.
 */
final case class Committable(appId: String, version: Long, files: Seq[WrittenFiles])

/** Both by length and bytes: an action may be longer than what writeUTF takes. */
object WrittenFilesSerializer extends Format[WrittenFiles] {
  override protected[flink] def write(out: DataOutputStream, files: WrittenFiles): Unit = {
    text(out, files.tableId)
    text(out, files.schema)
    texts(out, files.partitions)
    text(out, files.fence)
    texts(out, files.adds)
  }

  override protected[flink] def read(in: DataInputStream): WrittenFiles =
    WrittenFiles(text(in), text(in), texts(in), text(in), texts(in))
}

object CommittableSerializer extends Format[Committable] {
  override protected[flink] def write(out: DataOutputStream, committable: Committable): Unit = {
    text(out, committable.appId)
    out.writeLong(committable.version)
    out.writeInt(committable.files.size)
    committable.files.foreach(WrittenFilesSerializer.write(out, _))
  }

  override protected[flink] def read(in: DataInputStream): Committable =
    Committable(text(in), in.readLong(), Seq.fill(in.readInt())(WrittenFilesSerializer.read(in)))
}

/** A serializer for Flink's checkpoints. */
abstract class Format[A] extends SimpleVersionedSerializer[A] {
  protected[flink] def write(out: DataOutputStream, value: A): Unit
  protected[flink] def read(in: DataInputStream): A

  override def getVersion: Int = 2

  override def serialize(value: A): Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    write(new DataOutputStream(bytes), value)
    bytes.toByteArray
  }

  override def deserialize(version: Int, bytes: Array[Byte]): A = {
    if (version != getVersion) throw new IOException(s"a committable of version $version, which this sink does not know")
    read(new DataInputStream(new ByteArrayInputStream(bytes)))
  }

  protected def text(out: DataOutputStream, value: String): Unit = {
    val bytes = value.getBytes(UTF_8)
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  protected def text(in: DataInputStream): String = {
    val bytes = new Array[Byte](in.readInt())
    in.readFully(bytes)
    new String(bytes, UTF_8)
  }

  protected def texts(out: DataOutputStream, values: Seq[String]): Unit = {
    out.writeInt(values.size)
    values.foreach(text(out, _))
  }

  protected def texts(in: DataInputStream): Seq[String] = Seq.fill(in.readInt())(text(in))
}
