"""`ratify demo`: the main job on real data, or on streaming events; in a project of one's own, the project's tables."""

from typing import Annotated

import typer


def demo(
    days: Annotated[int, typer.Option(min=1, help="Days to land first; days that an earlier demo landed count.")] = 60,
    more: Annotated[int, typer.Option(min=0, help="Days to land after that.")] = 5,
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Stream events through Kafka instead of landing files.")
    ] = False,
    events: Annotated[int, typer.Option(min=1, help="With --streaming: events to send, twice.")] = 200_000,
) -> None:
    """Land real flights, run bronze to gold through the sensor, and report; or do the same with streaming events.

    In a project of your own it lands nothing: it loads what has landed, updates the project's tables, and reports.
    """
    from ratify_lakehouse.cli.stack_session import stack_for_this_process
    from ratify_lakehouse.definitions.project_folders import is_sample

    if not is_sample():
        from ratify_lakehouse.cli.project_demo import run_project_demo

        raise typer.Exit(0 if run_project_demo(kafka=streaming) else 1)
    with stack_for_this_process(kafka=streaming):
        if streaming:
            from ratify_lakehouse.cli.streaming_demo import run_streaming_demo

            passed = run_streaming_demo(events)
        else:
            from ratify_lakehouse.cli.flights_demo import run_demo

            passed = run_demo(days, more)
    raise typer.Exit(0 if passed else 1)
