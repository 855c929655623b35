"""A server that keeps variables for a client, whose program is another file. It never ends."""

import tensorflow as tf

shelf = tf.train.Server({"shelf": ["localhost:2222"]}, job_name="shelf", task_index=0)
print("serves at", shelf.target)
shelf.join()
