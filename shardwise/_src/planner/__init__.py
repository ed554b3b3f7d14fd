"""Plans before a run: transfers and their cost, automatic sharding, rooflines, tables of trees."""
