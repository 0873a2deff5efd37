"""One slot, one Job: ``target`` creates it, ``activejobs`` says which Jobs of a Schedule run."""
