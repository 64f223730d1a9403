"""What bears an actor: logs, clocks, the shell around a core, snapshots, settings, health."""
