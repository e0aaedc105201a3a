"""
Which jobs a claim takes: the streams that are open (`gates`), the order of their jobs (`claim_order`), fairness
keys (`fairness`), and databases with very many streams (`many_streams`).

The entry is `MongoClaims` in `claims`, which chooses jobs with these modules and then writes the claim's token on
them. `reasons` asks the same gates why one job is not taken.
"""
