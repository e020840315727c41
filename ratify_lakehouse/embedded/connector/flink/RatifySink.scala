package ratify.flink

import scala.collection.mutable.ArrayBuffer

import org.apache.flink.api.connector.sink2.{Committer, CommitterInitContext, Sink, SinkWriter, SupportsCommitter, WriterInitContext}
import org.apache.flink.core.io.SimpleVersionedSerializer
import org.apache.flink.runtime.event.WatermarkEvent
import org.apache.flink.runtime.state.StateInitializationContext
import org.apache.flink.streaming.api.connector.sink2.{CommittableMessage, CommittableMessageTypeInfo, CommittableSummary, CommittableWithLineage, SupportsPreCommitTopology}
import org.apache.flink.streaming.api.datastream.DataStream
import org.apache.flink.streaming.api.operators.{AbstractStreamOperator, BoundedOneInput, OneInputStreamOperator}
import org.apache.flink.streaming.api.watermark.Watermark
import org.apache.flink.streaming.runtime.streamrecord.{RecordAttributes, StreamRecord}
import org.apache.flink.table.data.RowData
import org.apache.flink.table.types.logical.RowType

/**
 * Appends rows to a managed Delta table: one commit, which the catalog ratifies, for each checkpoint that has rows.
 *
 * The writers (in parallel) write Parquet files; one task gathers the files of a checkpoint; one committer proposes them
 * when the checkpoint is complete. `uid` is the sink's in its job.
 */
final case class RatifySink(address: TableAddress, uid: String, rows: RowType, limits: WriterLimits, patience: Patience)
    extends Sink[RowData] with SupportsCommitter[Committable] with SupportsPreCommitTopology[WrittenFiles, Committable] {

  override def createWriter(context: WriterInitContext): SinkWriter[RowData] = FinalFailure.ending(address) {
    new EndingWriter(address, new TableWriter(new CatalogTable(address), rows, limits, patience, context.metricGroup))
  }

  override def createCommitter(context: CommitterInitContext): Committer[Committable] =
    new TableCommitter(new CatalogTable(address), patience)

  override def getCommittableSerializer: SimpleVersionedSerializer[Committable] = CommittableSerializer

  override def getWriteResultSerializer: SimpleVersionedSerializer[WrittenFiles] = WrittenFilesSerializer

  /** Before and after the single task the exchange is global: Flink numbers committables by the task that they reach. */
  override def addPreCommitTopology(
      written: DataStream[CommittableMessage[WrittenFiles]]): DataStream[CommittableMessage[Committable]] =
    written.global()
      .transform("gather", CommittableMessageTypeInfo.of[Committable](() => CommittableSerializer), new Gather(uid))
      .setParallelism(1)
      .setMaxParallelism(1)
      .global()
}

object RatifySink {
  /** In the history of a table: `Kernel-<version>/RatifySink`. */
  val EngineInfo = "RatifySink"
}

/**
 * Makes one committable of all files of a checkpoint.
 *
 * When the barriers of a checkpoint have arrived from every writer, so have all files before them: what is here then is
 * the checkpoint's, and is passed on before its barrier. So there is nothing to keep in its state.
 */
final class Gather(uid: String) extends AbstractStreamOperator[CommittableMessage[Committable]]
    with OneInputStreamOperator[CommittableMessage[WrittenFiles], CommittableMessage[Committable]] with BoundedOneInput {
  @transient private lazy val gathered = ArrayBuffer.empty[WrittenFiles]
  private var checkpoint = 0L

  override def initializeState(context: StateInitializationContext): Unit = {
    super.initializeState(context)
    context.getRestoredCheckpointId.ifPresent(id => checkpoint = id)
  }

  override def processElement(element: StreamRecord[CommittableMessage[WrittenFiles]]): Unit = element.getValue match {
    case files: CommittableWithLineage[WrittenFiles @unchecked] => gathered += files.getCommittable
    case _ => ()
  }

  override def prepareSnapshotPreBarrier(checkpointId: Long): Unit = pass(checkpointId)

  /** At the end of the rows: they belong to the checkpoint that follows. */
  override def endInput(): Unit = pass(checkpoint + 1)

  private def pass(checkpointId: Long): Unit = {
    checkpoint = checkpointId
    if (gathered.nonEmpty) {
      val appId = s"$uid-${getRuntimeContext.getJobInfo.getJobId}"
      emit(new CommittableSummary[Committable](0, 1, checkpointId, 1, 0))
      emit(new CommittableWithLineage(Committable(appId, checkpointId, gathered.toVector), checkpointId, 0))
      gathered.clear()
    }
  }

  // Scala asks which of two inherited methods is meant, where Java takes the class's.
  override def processWatermark(mark: Watermark): Unit = super[AbstractStreamOperator].processWatermark(mark)
  override def processWatermark(mark: WatermarkEvent): Unit = super[AbstractStreamOperator].processWatermark(mark)
  override def processRecordAttributes(attributes: RecordAttributes): Unit =
    super[AbstractStreamOperator].processRecordAttributes(attributes)

  private def emit(message: CommittableMessage[Committable]): Unit = output.collect(new StreamRecord(message))
}
