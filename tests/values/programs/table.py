"""The table of all steps: `program(seed)`."""

from tests.values.programs import arrays, control, more, numbers
from tests.values.programs.make import Program as Program
from tests.values.programs.make import program as program

FILES = (arrays, control, more, numbers)
