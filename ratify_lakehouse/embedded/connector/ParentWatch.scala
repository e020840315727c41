package ratify

/**
 * Runs another class's `main`, and ends the JVM when standard input ends.
 *
 * The supervisor holds the other end of that pipe, so the JVM cannot outlive it, whatever signal ended it and whatever
 * the operating system. The first argument is the class; the others are its arguments.
 */
object ParentWatch {
  def main(args: Array[String]): Unit = {
    daemon("parent-watch") {
      while (System.in.read() >= 0) {}
      daemon("parent-watch-halt") {
        // Shutdown hooks may wait for ever on a peer that has died with the supervisor.
        Thread.sleep(5000)
        Runtime.getRuntime.halt(143)
      }
      System.exit(143)
    }
    Class.forName(args.head).getMethod("main", classOf[Array[String]]).invoke(null, args.tail)
  }

  private def daemon(name: String)(body: => Unit): Unit = {
    val thread = new Thread(() => body, name)
    thread.setDaemon(true)
    thread.start()
  }
}
