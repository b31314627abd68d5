"""Steps of trainings, and how long they take; nothing of this project, since not all that is timed may see it."""

import statistics
import time


def timed(step, count):
    """Makes steps.

    Args:
      step: function that makes one step and returns its loss.
      count: number of steps.

    Returns:
      CPU seconds a step (user and system, all threads), wall seconds a step, and the last loss.
    """
    cpu, wall = time.process_time(), time.monotonic()
    for _ in range(count):
        loss = step()
    return (time.process_time() - cpu) / count, (time.monotonic() - wall) / count, float(loss)


def in_turns(steps, warm_up, rounds, count):
    """Makes steps of several kinds in turns, a few at a time.

    Args:
      steps: dict from the name of each kind to the function that makes one step.
      warm_up: number of steps of each kind that are made before, and are not timed.
      rounds: number of turns.
      count: number of steps in a turn.

    Returns:
      Dict from the names to the medians over the turns: CPU seconds and wall seconds a step.
    """
    for step in steps.values():
        timed(step, warm_up)
    turns = [{name: timed(step, count)[:2] for name, step in steps.items()} for _ in range(rounds)]
    return {name: [statistics.median(values) for values in zip(*(turn[name] for turn in turns))] for name in steps}


def of_training(trainer, stretch):
    """Returns a function that makes one step of a training, input and metrics included, and returns its loss.

    Args:
      trainer: a `bert.training.trainer.Trainer`.
      stretch: the `bert.training.trainer.Stretch` to train.
    """
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        tf.set_random_seed(1)
        tf.train.create_global_step()
        batch = features(stretch.input_fn({"batch_size": stretch.schedule.train_batch_size}))
        made = trainer.training_model_fn(stretch)(batch, None, tf.estimator.ModeKeys.TRAIN, {})
        summarise, tensors = made.host_call
        return of_graph(made.loss, made.train_op, summarise(*tensors))


def features(dataset):
    """The next batch of a dataset, as Tensors."""
    import tensorflow.compat.v1 as tf

    iterator = tf.data.make_initializable_iterator(dataset)
    tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def of_graph(loss, *operations):
    """Returns a function that runs the operations of this graph in a new session, and returns the loss."""
    import tensorflow.compat.v1 as tf

    session = tf.Session()
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    session.run(tf.tables_initializer())  # the input starts at the global step, a variable
    return lambda: session.run([loss, *operations])[0]
