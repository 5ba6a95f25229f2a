"""Exchanges on record: kept by the gateway, read, shown and run again."""
