"""python -m evenshard: the command `evenshard` in a checkout."""

import sys

from evenshard.command import main

sys.exit(main())
