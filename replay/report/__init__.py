"""Pictures of logs and of results: a page that works offline, PDF, PNG, Perfetto."""
