package ratify.flink

import java.io.IOException
import java.lang.reflect.{InvocationHandler, InvocationTargetException, Method, Proxy}
import java.util.concurrent.{Callable, ExecutionException, Executors, TimeoutException, TimeUnit}

import io.delta.storage.commit.uccommitcoordinator.UCDeltaClient

/**
 * Gives each call of the catalog's client a limit: Delta's own client waits for ever for an answer that a network lost.
 *
 * A call that is over the limit fails as one whose connection was cut: the outcome of a commit is then looked up.
 */
private[flink] final class LimitedClient(client: UCDeltaClient, seconds: Long) extends InvocationHandler {
  private val calls = Executors.newCachedThreadPool { (task: Runnable) =>
    val thread = new Thread(task, "catalog")
    thread.setDaemon(true)
    thread
  }

  override def invoke(proxy: Any, method: Method, arguments: Array[AnyRef]): AnyRef = {
    val call: Callable[AnyRef] = () => method.invoke(client, Option(arguments).getOrElse(Array.empty[AnyRef]): _*)
    val answer = calls.submit(call)
    try answer.get(seconds, TimeUnit.SECONDS)
    catch {
      case failed: ExecutionException => throw LimitedClient.cause(failed.getCause)
      case _: TimeoutException =>
        answer.cancel(true)
        throw new IOException(s"the catalog did not answer within $seconds s (${method.getName})")
    } finally if (method.getName == "close") calls.shutdownNow()
  }
}

private[flink] object LimitedClient {
  def apply(client: UCDeltaClient, seconds: Long): UCDeltaClient = {
    val kinds = Array[Class[_]](classOf[UCDeltaClient])
    Proxy.newProxyInstance(classOf[UCDeltaClient].getClassLoader, kinds, new LimitedClient(client, seconds)).asInstanceOf[UCDeltaClient]
  }

  private def cause(failed: Throwable): Throwable = failed match {
    case invoked: InvocationTargetException => invoked.getCause
    case other => other
  }
}
