"""Numbers written into several TFRecord files, and read back once in the order of their names."""

import tensorflow as tf

FILES, EACH = 3, 4
PATTERN = "numbers-{:02d}.tfrecord"


def example(**numbers):
    """An example that holds whole numbers, one under each name."""
    lists = {name: tf.train.Int64List(value=[value]) for name, value in numbers.items()}
    features = {name: tf.train.Feature(int64_list=values) for name, values in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def write():
    for file in range(FILES):
        with tf.python_io.TFRecordWriter(PATTERN.format(file)) as records:
            for place in range(EACH):
                records.write(example(file=file, place=place).SerializeToString())


def pairs(names):
    """Two records at a time: the files that they were in, and their places there."""
    queue = tf.train.string_input_producer(names, shuffle=False, num_epochs=1)
    _, record = tf.TFRecordReader().read(queue)
    whole = tf.FixedLenFeature((), tf.int64)
    parsed = tf.parse_single_example(record, {"file": whole, "place": whole})
    return tf.train.batch([parsed["file"], parsed["place"]], batch_size=2, capacity=8)


write()
found = tf.train.match_filenames_once("numbers-*.tfrecord")
both = pairs(found)
with tf.Session() as reading:
    # The names and the number of epochs are local variables.
    reading.run(tf.local_variables_initializer())
    print(*sorted(name.decode() for name in reading.run(found)))
    threads = tf.train.Coordinator()
    tf.train.start_queue_runners(reading, coord=threads)
    try:
        while True:
            files, places = reading.run(both)
            print("read", *(f"{file}/{place}" for file, place in zip(files, places, strict=True)))
    except tf.errors.OutOfRangeError:
        print("no more records")
    threads.request_stop()
    threads.join()
