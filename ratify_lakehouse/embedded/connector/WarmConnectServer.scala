package ratify

import java.nio.file.{Files, Path}

import scala.util.control.NonFatal

import org.apache.hadoop.fs.FileUtil
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connect.service.SparkConnectServer

/**
 * Spark's Connect server, which warms up on a temporary Delta table in its first idle seconds.
 *
 * A first CREATE costs 7 s in a cold JVM, most of it class loading and compilation; after this it costs 2 s. The table
 * lies in the JVM's temporary directory and in no catalog.
 */
object WarmConnectServer {
  def main(args: Array[String]): Unit = {
    val thread = new Thread(() => warmUp(), "warm-up")
    thread.setDaemon(true)
    thread.start()
    SparkConnectServer.main(args)
  }

  private def warmUp(): Unit = {
    val scratch = Files.createTempDirectory("warm-up")
    try {
      while (SparkSession.getDefaultSession.isEmpty) Thread.sleep(50)
      run(SparkSession.getDefaultSession.get.newSession(), scratch)
    } catch {
      // A server that could not warm up is a cold one, and serves all the same.
      case NonFatal(failure) => System.err.println(s"warm-up failed: $failure")
    } finally FileUtil.fullyDelete(scratch.toFile)
  }

  private def run(spark: SparkSession, scratch: Path): Unit = {
    val table = s"spark_catalog.delta.`$scratch/t`"
    spark.sql(s"CREATE TABLE $table (a INT, b STRING) USING DELTA").collect()
    spark.sql(s"INSERT INTO $table VALUES (1, 'x')").collect()
    spark.sql(s"SELECT count(*) FROM $table").collect()
  }
}
