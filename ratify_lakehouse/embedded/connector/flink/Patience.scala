package ratify.flink

import java.io.IOException
import java.util.concurrent.ThreadLocalRandom

import scala.util.control.NonFatal

import org.slf4j.LoggerFactory

/** Repeats what lost a race, or got no answer, for so many milliseconds. */
final case class Patience(address: TableAddress, millis: Long) {
  private val log = LoggerFactory.getLogger(classOf[Patience])

  /** Runs a block until it succeeds; `between` follows each failure. What no repetition cures is thrown at once. */
  def repeat[A](what: String, between: => Unit = ())(block: => A): A = {
    val deadline = System.nanoTime() + millis * 1000000L
    def attempt(number: Int): A =
      try block
      catch {
        case NonFatal(failed) if FinalFailure.reason(address, failed).isEmpty && FinalFailure.isTransient(failed) =>
          if (System.nanoTime() > deadline) {
            throw new IOException(
              s"${address.fullName}: $what did not succeed in ${millis / 1000} s and ${number + 1} attempts, the last: $failed",
              failed)
          }
          log.info("{}: {}, attempt {}: {}", address.fullName, what, number, failed.toString)
          between
          Thread.sleep(Patience.pause(number))
          attempt(number + 1)
      }
    attempt(0)
  }
}

object Patience {
  private val FirstPause = 50L
  private val LongestPause = 5000L

  /** Full jitter: writers that lost one race do not meet in the next. */
  private def pause(attempt: Int): Long =
    1 + ThreadLocalRandom.current().nextLong(math.min(LongestPause, FirstPause << math.min(attempt, 10)))
}
