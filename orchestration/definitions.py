"""The code location: the tables that assets/ declares, with their jobs, schedules, sensors and resources."""

from orchestration.jobs import JOBS
from orchestration.schedules import SCHEDULES
from ratify_lakehouse.definitions.project_definitions import project_definitions
from ratify_lakehouse.definitions.sensors.table_sensors import table_sensors
from resources.project_resources import RESOURCES

defs = project_definitions(jobs=JOBS, schedules=SCHEDULES, sensors=table_sensors(), resources=RESOURCES)
