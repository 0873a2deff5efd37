"""Where everything lives: shards, members, and the way from one number of shards to another."""
