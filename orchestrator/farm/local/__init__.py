"""The farm of one machine: its folders, database, devices and quotas."""
