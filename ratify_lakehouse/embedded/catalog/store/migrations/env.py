"""Run by alembic: the revisions over the connection, and inside of the transaction, that `migrate` was given."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
