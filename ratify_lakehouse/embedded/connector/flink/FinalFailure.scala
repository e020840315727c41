package ratify.flink

import java.io.IOException

import scala.util.control.NonFatal

import io.delta.kernel.commit.CommitFailedException
import io.delta.kernel.exceptions._
import io.delta.storage.commit.uccommitcoordinator.UCCommitCoordinatorException
import io.unitycatalog.client.ApiException
import org.apache.flink.runtime.execution.SuppressRestartsException
import org.apache.hadoop.fs.FSError
import org.slf4j.LoggerFactory

/** A failure that no repetition cures: the job ends with it, and does not restart. */
final class FinalFailure(message: String) extends RuntimeException(message)

object FinalFailure {
  private val log = LoggerFactory.getLogger(classOf[FinalFailure])

  /** Runs a block; a failure that no repetition cures becomes one that Flink does not restart at. */
  def ending[A](address: TableAddress)(block: => A): A =
    try block
    catch { case NonFatal(failed) => throw reason(address, failed).fold[Throwable](failed)(ended(_, failed)) }

  /** Whether the same call may succeed later: it lost a race, or the catalog or the storage did not answer. */
  def isTransient(failed: Throwable): Boolean = causes(failed).exists {
    case _: IOException | _: ConcurrentWriteException | _: CommitFailedException | _: MaxCommitRetryLimitReachedException |
        _: CommitStateUnknownException | _: KernelEngineException | _: UCCommitCoordinatorException |
        _: ConcurrentTransactionException | _: FSError => true
    case api: ApiException => api.getCode == 0 || api.getCode == 409 || api.getCode == 429 || api.getCode >= 500
    case _ => false
  }

  /** What is wrong, if no repetition cures it. */
  def reason(address: TableAddress, failed: Throwable): Option[String] = {
    val name = address.fullName
    causes(failed).collectFirst {
      case known: FinalFailure => known.getMessage
      case api: ApiException if api.getCode == 401 =>
        s"The catalog ${address.endpoint} accepts no such credentials (401): ${body(api)}"
      case api: ApiException if api.getCode == 403 =>
        s"The catalog does not permit writing $name (403). The principal needs USE CATALOG, USE SCHEMA, EXTERNAL USE " +
          s"SCHEMA, SELECT and MODIFY: ${body(api)}"
      case api: ApiException if api.getCode == 404 => s"The catalog has no table $name; was it dropped? (404): ${body(api)}"
      case api: ApiException if api.getCode == 400 => s"The catalog refuses a request for $name (400): ${body(api)}"
      case unsupported @ (_: UnsupportedTableFeatureException | _: UnsupportedProtocolVersionException |
          _: InvalidTableException | _: TableNotFoundException | _: UnsupportedOperationException) => s"$name cannot be written: ${unsupported.getMessage}"
    }
  }

  /** Without the original, which the log has: one that cannot be serialized would hide from Flink what this is. */
  private def ended(reason: String, failed: Throwable): SuppressRestartsException = {
    if (!failed.isInstanceOf[FinalFailure]) log.warn(reason, failed)
    new SuppressRestartsException(new FinalFailure(reason))
  }

  private def body(api: ApiException): String =
    Option(api.getResponseBody).filter(_.nonEmpty).getOrElse(String.valueOf(api.getMessage)).take(300)

  private def causes(failed: Throwable): Seq[Throwable] =
    Iterator.iterate(failed)(_.getCause).takeWhile(_ != null).take(50).toSeq
}
