"""Names of nodes under which something is held, and for which nobody beats."""

from __future__ import annotations

# From each name to the next in the index, one look per node, however many rows each has: every node asks
# this with every beat, and a plain DISTINCT has been seen to read the whole queue.
_EACH_NAME = """{walk} (node_id) AS (
        SELECT CAST((SELECT t.node_id FROM {table} t
                      WHERE t.node_id IS NOT NULL ORDER BY t.node_id LIMIT 1) AS {{text}})
        UNION ALL
        SELECT CAST((SELECT t.node_id FROM {table} t
                      WHERE t.node_id > w.node_id ORDER BY t.node_id LIMIT 1) AS {{text}})
          FROM {walk} w
         WHERE w.node_id IS NOT NULL
    )"""

# In the queue a living node may have many rows that have ended and cannot be removed yet. The walk does not look among
# them: it goes to the next living node by the nodes' own table, and looks for names in between, or behind the last.
_NEXT_LIVING = """(SELECT n.node_id FROM scheduler_node n
                    WHERE n.node_id > <last> AND n.state <> 'DEAD' ORDER BY n.node_id LIMIT 1)"""
_NEXT_HOLDER = f"""CAST(COALESCE(
            (SELECT q.picked_by FROM scheduler_job_queue q
              WHERE q.picked_by > <last> AND q.picked_by < {_NEXT_LIVING} ORDER BY q.picked_by LIMIT 1),
            {_NEXT_LIVING},
            (SELECT q.picked_by FROM scheduler_job_queue q
              WHERE q.picked_by > <last> ORDER BY q.picked_by LIMIT 1)) AS {{text}})"""
_EACH_HOLDER = f"""claims (node_id) AS (
        SELECT {_NEXT_HOLDER.replace("<last>", "''")}
        UNION ALL
        SELECT {_NEXT_HOLDER.replace("<last>", "w.node_id")}
          FROM claims w
         WHERE w.node_id IS NOT NULL
    )"""

FIND_STRAYS = f"""
    WITH RECURSIVE
    {_EACH_HOLDER},
    {_EACH_NAME.format(walk="keys", table="scheduler_business_key_reservation")},
    {_EACH_NAME.format(walk="permits", table="scheduler_resource_permit")}
    SELECT h.node_id
      FROM (SELECT node_id FROM claims UNION SELECT node_id FROM keys UNION SELECT node_id FROM permits) h
     WHERE h.node_id IS NOT NULL
       AND NOT EXISTS (SELECT 1 FROM scheduler_node n WHERE n.node_id = h.node_id AND n.state <> 'DEAD')
     ORDER BY h.node_id
"""
