package org.apache.spark.sql.delta.coordinatedcommits

import java.io.IOException
import java.lang.reflect.{InvocationTargetException, Proxy}
import java.util

import io.delta.storage.commit.CommitFailedException
import io.delta.storage.commit.uccommitcoordinator.UCClient
import io.unitycatalog.client.ApiException

/**
 * Delta's own client of the catalog, in which a commit that the catalog does not permit fails at once.
 *
 * Delta 4.4 takes every answer but 400, 404 and 409 for a lost connection: it repeats the request for eight minutes,
 * eleven times. A principal without MODIFY, or a token that expires during a write, would hang for an hour and a half.
 *
 * It is in this package because Delta lets only its own packages replace its client (`ucClientFactory`).
 */
object RefusedCommits extends UCClientFactory {
  def install(): Unit = UCCommitCoordinatorBuilder.ucClientFactory = this

  override def createUCClient(config: util.Map[String, String]): UCClient = {
    val client = UCTokenBasedRestClientFactory.createUCClient(config)
    Proxy.newProxyInstance(getClass.getClassLoader, Array(classOf[UCClient]), (_, method, arguments) =>
      try method.invoke(client, Option(arguments).toSeq.flatten: _*)
      catch { case failed: InvocationTargetException => throw asFinal(failed.getCause) }
    ).asInstanceOf[UCClient]
  }

  private def asFinal(failure: Throwable): Throwable = (failure, failure.getCause) match {
    case (_: IOException, refused: ApiException) if refused.getCode == 401 || refused.getCode == 403 =>
      new CommitFailedException(false /* retryable */, false /* conflict */, failure.getMessage, failure)
    case _ => failure
  }
}
