"""Due points under a lease: claiming, planning and settling them."""
