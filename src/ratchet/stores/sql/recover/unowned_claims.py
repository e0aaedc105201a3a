"""Finds names of nodes that hold claims, keys or permits while no node of that name is alive."""

from __future__ import annotations

# From each name to the next in the index, one look per node, however many rows each has. Every node asks this with
# every beat, and a plain DISTINCT has been seen to read the whole queue.
_EACH_NAME = """{walk} (node_id) AS (
        SELECT CAST((SELECT t.node_id FROM {table} t
                      WHERE t.node_id IS NOT NULL ORDER BY t.node_id LIMIT 1) AS {{text}})
        UNION ALL
        SELECT CAST((SELECT t.node_id FROM {table} t
                      WHERE t.node_id > w.node_id ORDER BY t.node_id LIMIT 1) AS {{text}})
          FROM {walk} w
         WHERE w.node_id IS NOT NULL
    )"""

# In the queue a living node may have many rows that are deleted and cannot be vacuumed yet. The walk does not look among
# them: it finds the next living node in the table of nodes, and looks for names before it, or after the last one.
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

FIND_UNOWNED = f"""
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
