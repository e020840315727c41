package ratify.flink

import java.util
import java.util.Optional

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.delta.kernel.{Operation, Snapshot, TransactionCommitResult}
import io.delta.kernel.data.Row
import io.delta.kernel.defaults.internal.json.JsonUtils
import io.delta.kernel.engine.Engine
import io.delta.kernel.hook.PostCommitHook.PostCommitHookType
import io.delta.kernel.internal.actions.SingleAction
import io.delta.kernel.internal.util.Utils
import io.delta.kernel.utils.CloseableIterable
import org.apache.flink.api.connector.sink2.Committer
import org.apache.flink.api.connector.sink2.Committer.CommitRequest
import org.slf4j.LoggerFactory

/**
 * Proposes each committable to the catalog until it is ratified, once.
 *
 * Kernel's own repetition fails where the winner of a race is ratified and not yet published, so it is off. Each attempt
 * here begins with the newest version: if that has the committable's `txn`, an earlier attempt was ratified, whatever its
 * answer was. Committables are committed in order and none is left for later, because a later checkpoint's `txn` would
 * make an earlier one pass for committed.
 */
final class TableCommitter(table: CatalogTable, patience: Patience) extends Committer[Committable] {
  private val log = LoggerFactory.getLogger(classOf[TableCommitter])
  private val address = table.address

  override def commit(requests: util.Collection[CommitRequest[Committable]]): Unit =
    requests.asScala.toSeq.sortBy(_.getCommittable.version).foreach { request =>
      val committable = request.getCommittable
      val newly = FinalFailure.ending(address) {
        patience.repeat(s"the commit of checkpoint ${committable.version}", makeRoom())(commit(committable))
      }
      if (!newly) request.signalAlreadyCommitted()
    }

  override def close(): Unit = table.close()

  /** Returns whether this call had it ratified; otherwise an earlier one did. */
  private def commit(committable: Committable): Boolean = {
    val opened = table.open()
    val engine = opened.engine
    val known = opened.snapshot.getLatestTransactionVersion(engine, committable.appId)
    val already = known.isPresent && known.get >= committable.version
    if (!already) {
      committable.files.foreach(TableSchema.checkWritten(address.fullName, opened, _))
      val result = opened.snapshot.buildUpdateTableTransaction(RatifySink.EngineInfo, Operation.WRITE)
        .withTransactionId(committable.appId, committable.version)
        .withMaxRetries(0)
        .build(engine)
        .commit(engine, actions(committable))
      ratified(engine, result)
    }
    !already
  }

  private def actions(committable: Committable): CloseableIterable[Row] = {
    val rows = committable.files.iterator.flatMap(_.adds).map(JsonUtils.rowFromJson(_, SingleAction.FULL_SCHEMA))
    CloseableIterable.inMemoryIterable(Utils.toCloseableIterator(rows.asJava))
  }

  /**
   * Publishes the version, and writes Delta's checkpoint if one is due. The version is ratified: a failure changes
   * nothing. The other hooks would write a .crc file without the in-commit timestamp, after which DuckDB's INSERT fails.
   */
  private def ratified(engine: Engine, result: TransactionCommitResult): Unit =
    harmless {
      val after: Optional[Snapshot] = result.getPostCommitSnapshot
      after.orElseGet(() => table.open().snapshot).publish(engine)
      result.getPostCommitHooks.asScala
        .filter(_.getType == PostCommitHookType.CHECKPOINT).foreach(_.threadSafeInvoke(engine))
    }

  /** A catalog keeps few unpublished versions, and then takes no other: those of writers that died are published here. */
  private def makeRoom(): Unit = harmless {
    val opened = table.open()
    opened.snapshot.publish(opened.engine)
  }

  private def harmless(block: => Unit): Unit =
    try block
    catch { case NonFatal(failed) => log.info("{}: a version was not published: {}", address.fullName, failed.toString) }
}
