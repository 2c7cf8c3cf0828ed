"""Everything an operator can set, read once, from the environment.

Names are `TENUTO_` and the field in capitals. An unknown name, a value out of range or two settings that contradict
each other stop the start with a sentence that names the setting.
"""

from tenuto.settings.fields import DEFAULT_STORE, Settings
from tenuto.settings.reading import convert_setting, parse_duration, read_settings, setting_name

__all__ = ["DEFAULT_STORE", "Settings", "convert_setting", "parse_duration", "read_settings", "setting_name"]
