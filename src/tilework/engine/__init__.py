"""From schedules to results: devices, compiling, linking, running, capturing, exporting.

Most starts need few of these modules, so this file imports nothing.
"""
