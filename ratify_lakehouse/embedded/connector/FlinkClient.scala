package ratify

import org.apache.flink.table.client.SqlClient

/**
 * Flink's SQL client, whose JVM ends with it and its clusters.
 *
 * A connector may leave threads that are no daemons, as Delta's own does: the client's `main` returns, and the JVM stays.
 * The clusters end after it, in threads of theirs, and write then what became of their jobs. No class of Scala's library
 * is used here, for Delta's own connector brings none.
 */
object FlinkClient {
  private final val LongestMillis = 30000L

  def main(args: Array[String]): Unit = {
    SqlClient.main(args)
    val deadline = System.currentTimeMillis() + LongestMillis
    while (clusterRuns && System.currentTimeMillis() < deadline) Thread.sleep(20)
    System.exit(0)
  }

  private def clusterRuns: Boolean = {
    val threads = Thread.getAllStackTraces.keySet.iterator
    var found = false
    while (threads.hasNext) {
      val thread = threads.next()
      found ||= !thread.isDaemon && thread.isAlive && ofCluster(thread.getName)
    }
    found
  }

  private def ofCluster(thread: String): Boolean =
    thread.contains("flink") || thread.contains("pekko") || thread.contains("mini-cluster") || thread.contains("jobmanager")
}
