"""API, jobs, dashboard and storage of Osmosis."""
