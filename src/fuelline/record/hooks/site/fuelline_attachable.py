"""`FUELLINE_ATTACHABLE=1`: any process of the same user may look at this one, whatever Yama says.

Imported at the start of every Python of an environment that has fuelline installed, by a line in
`fuelline_attachable.pth`, and only where the variable is set. Nothing else is loaded or changed.
"""

from fuelline.record.hooks.site.fuelline_ptrace import allow

ANYBODY = -1
"""PR_SET_PTRACER_ANY."""

allow(ANYBODY)
