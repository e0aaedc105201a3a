"""
``ratchet demo``: a small shop that shows within half a minute what Ratchet does.

Enter through `command.demo`. It submits the jobs of `shop`, watches them, and fails if one of them does not
end as `scenario` says it should.
"""
