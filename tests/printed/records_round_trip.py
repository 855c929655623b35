"""Write records into several files, find them by a pattern, read them back in batches."""
import tensorflow as tf

num_shards = 3
instances_per_shard = 4
for i in range(num_shards):
    filename = 'data.tfrecords-%.5d-of-%.5d' % (i, num_shards)
    with tf.python_io.TFRecordWriter(filename) as writer:
        for j in range(instances_per_shard):
            example = tf.train.Example(features=tf.train.Features(feature={
                'i': tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                'j': tf.train.Feature(int64_list=tf.train.Int64List(value=[j]))}))
            writer.write(example.SerializeToString())

files = tf.train.match_filenames_once("data.tfrecords-*")
filename_queue = tf.train.string_input_producer(files, shuffle=False, num_epochs=1)
reader = tf.TFRecordReader()
_, serialized_example = reader.read(filename_queue)
features = tf.parse_single_example(serialized_example, features={
    'i': tf.FixedLenFeature([], tf.int64),
    'j': tf.FixedLenFeature([], tf.int64)})
example_batch, label_batch = tf.train.batch(
    [features['i'], features['j']], batch_size=3, capacity=1000 + 3 * 3)

with tf.Session() as sess:
    sess.run((tf.global_variables_initializer(), tf.local_variables_initializer()))
    print(' '.join(name.decode() for name in sorted(sess.run(files))))
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess=sess, coord=coord)
    try:
        while not coord.should_stop():
            i, j = sess.run([example_batch, label_batch])
            print(i, j)
    except tf.errors.OutOfRangeError:
        print('one epoch is over')
    finally:
        coord.request_stop()
    coord.join(threads)
