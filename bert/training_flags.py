"""Flags on model, training and device, which all programs that train have, and what follows from them."""

from absl import flags, logging

from bert import modeling, optimization, program
from bert.errors import InputError
from bert.training import cluster, devices

# Flags that may differ among the machines of a training.
_OWN = ("num_workers", "do_eval", "do_predict")


def define():
    """Defines the flags, and the model garden's names for some."""
    flags.DEFINE_string("output_dir", None, "Folder for checkpoints, event files and results.")
    flags.DEFINE_integer("train_batch_size", 32, "Examples per step, over all cores.", lower_bound=1)
    flags.DEFINE_float("learning_rate", 5e-5, "Peak learning rate.", lower_bound=0.0)
    flags.DEFINE_float("end_lr", 0.0, "Learning rate at the end of training.", lower_bound=0.0)
    flags.DEFINE_float("poly_power", 1.0, "Power of the learning rate's decay: 1 is a straight line.", lower_bound=0.0)
    flags.DEFINE_float(
        "layerwise_lr_decay",
        1.0,
        "Factor of the learning rate from each layer to the one below it.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_enum(
        "optimizer_type",
        optimization.ADAMW,
        optimization.OPTIMIZERS,
        "Optimizer. `lamb` is the paper's, with bias correction, as NVIDIA and MLPerf have it; ALBERT's has none.",
    )
    flags.DEFINE_float("weight_decay_rate", 0.01, "Share by which weights decay, times the rate.", lower_bound=0.0)
    flags.DEFINE_float("adam_beta_1", 0.9, "Decay of the optimizer's first moment.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_float("adam_beta_2", 0.999, "Decay of its second moment.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_float("adam_epsilon", 1e-6, "What is added to the second moment's root.", lower_bound=0.0)
    flags.DEFINE_integer(
        "num_accumulation_steps",
        1,
        "Micro-batches that each core's part of a batch is cut into: as many times less memory, for the same step.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "recompute_grad",
        False,
        "Whether to compute each layer once more for its gradient instead of keeping what is in it: less memory.",
    )
    flags.DEFINE_integer("save_checkpoints_steps", 1000, "Steps between two checkpoints.", lower_bound=1)
    flags.DEFINE_integer("keep_checkpoint_max", 5, "How many of the newest checkpoints are kept.", lower_bound=1)
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Steps a TPU makes between two returns to the host.", lower_bound=1
    )
    flags.DEFINE_integer("seed", 12345, "Seed of initialisation, dropout, order of examples and masking.")
    flags.DEFINE_enum(
        "dtype",
        "fp32",
        list(modeling.COMPUTE_DTYPES),
        "What activations and products are computed in: bf16 is for TPUs, newer GPUs and CPUs with avx512_bf16. "
        "Variables and checkpoints are float32 with each.",
    )
    flags.DEFINE_integer("log_steps", 100, "Steps between two reports of progress.", lower_bound=1)
    flags.DEFINE_bool(
        "check_only", False, "Whether to end once everything is checked, before records of text and steps."
    )

    define_device()
    flags.DEFINE_enum(
        "distribution_strategy",
        None,
        ["tpu", *devices.STRATEGIES],
        "How devices share each batch of a training: `mirrored`, all GPUs of this machine; `multi_worker_mirrored`, "
        "those of all machines that the variable TF_CONFIG names; `one_device` or `off`, a single one; `tpu` is "
        "--use_tpu. Default: the machines of TF_CONFIG, if it names several, or else one device.",
    )
    flags.DEFINE_bool(
        "enable_xla",
        False,
        "Whether XLA compiles the steps of a training on a GPU or CPU, as it always does for a TPU.",
    )
    flags.DEFINE_alias("use_xla", "enable_xla")
    flags.DEFINE_alias("model_dir", "output_dir")
    flags.DEFINE_alias("steps_per_loop", "iterations_per_loop")
    flags.DEFINE_alias("optimizer", "optimizer_type")


def define_device():
    """Defines the flags that say where to compute."""
    flags.DEFINE_bool(
        "use_tpu",
        False,
        "Whether to run on a TPU. Unless it is given: if this machine has one, or --tpu_name, --master or the variable "
        "TPU_NAME names one.",
    )
    flags.DEFINE_string(
        "tpu_name",
        None,
        "Cloud TPU: `local` on a TPU VM, a name, or an address grpc://host:port; of a pod slice all, with commas "
        "between them. Default: the variable TPU_NAME, or else this machine's.",
    )
    flags.DEFINE_string("tpu_zone", None, "Zone of the Cloud TPU. Default: this machine's.")
    flags.DEFINE_string("gcp_project", None, "Project of the Cloud TPU. Default: this machine's.")
    flags.DEFINE_string("master", None, "Address of the TPU, instead of --tpu_name.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Number of TPU cores. Unless it is given, as many as the TPU has.")
    flags.DEFINE_alias("tpu", "tpu_name")


def define_evaluation(best_metric, best_metric_help):
    """Defines the flags on evaluations in the course of a training.

    Args:
      best_metric: default of --best_metric.
      best_metric_help: what it is.
    """
    flags.DEFINE_integer(
        "eval_every",
        None,
        "Evaluate every so many steps during training too, and keep the best checkpoint in output_dir/best.",
        lower_bound=1,
    )
    flags.DEFINE_string("best_metric", best_metric, best_metric_help)
    flags.DEFINE_integer(
        "early_stopping_patience",
        None,
        "End training when so many evaluations of --eval_every in a row were no better than one before.",
        lower_bound=1,
    )


def choose_device(values, paths):
    """The device that the flags ask for.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      paths: names of the flags whose paths the device must be able to read or write.

    Raises:
      InputError: there is no such device, or it cannot see one of the paths.
    """
    use_tpu = None if values["use_tpu"].using_default_value else values.use_tpu
    device = devices.choose(use_tpu, values.tpu_name, values.tpu_zone, values.gcp_project, values.master)
    devices.check_paths(device, {name: values[name].value for name in paths})
    return device


def choose_training_device(values, paths):
    """As `choose_device`, for a training: it must also have the dtype that the flags ask for.

    A machine of several that train together has a folder of its own as --output_dir from then on, unless it is the
    chief. Without a training only the chief has anything to do.

    Raises:
      InputError: see `choose_device` and `devices.distribute`; or the flags differ from those of the chief.
      cluster.Done: this machine has nothing to do.
    """
    strategy = values.distribution_strategy
    if strategy == "tpu":
        values.use_tpu = True
    elif strategy and (values.use_tpu or values.tpu_name):
        raise InputError(
            f"--distribution_strategy={strategy} is not for a TPU, but one is named. Give --distribution_strategy=tpu."
        )
    elif strategy:
        values.use_tpu = False  # and not this machine's, if it has one
    device = choose_device(values, paths)
    devices.check_dtype(device, values.dtype)
    if values.enable_xla:
        device = devices.with_xla(device)
    if device.use_tpu:
        return device
    if not values.do_train:
        machines = cluster.read()
        if machines and not machines.is_chief:
            logging.info("without --do_train there is nothing to do for a machine that is not the chief")
            raise cluster.Done
        return device
    device = devices.distribute(device, strategy)
    if device.cluster:
        _check_same(values, device.cluster)
        if not device.cluster.is_chief:
            values.output_dir = cluster.scratch_folder()
    return device


def _check_same(values, machines):
    """Checks this machine's flags against those of the chief, apart from texts, which may be paths of its own."""
    kinds = ("bool", "float", "int", "string enum")
    names = [name for name in program.flag_values() if values[name].flag_type() in kinds and name not in _OWN]
    mine = {name: values[name].value for name in names}
    for name, there in machines.agree(mine).items():
        if mine.get(name) != there:
            raise InputError(
                f"--{name} is {mine.get(name)} here, but {there} at the chief: give all machines the same."
            )


def check_evaluation(values, *alternatives):
    """Checks that the evaluations whose number the patience counts are asked for.

    Args:
      values: the parsed flags.
      *alternatives: flags that ask for them too.
    """
    if values.early_stopping_patience and not any(values[name].value for name in ("eval_every", *alternatives)):
        raise InputError("--early_stopping_patience counts the evaluations of --eval_every, which is not given.")


def check_best_metric(values, known):
    """Checks that --best_metric, if it is given, is one of the metrics that there are, a list of names."""
    if values.best_metric and values.best_metric not in known:
        raise InputError(f"--best_metric={values.best_metric}: there are {', '.join(known)}.")


def schedule_options(values):
    """Those fields of a `bert.training.trainer.Schedule` that are flags whatever the schedule's length.

    Raises:
      InputError: the batch cannot be cut into micro-batches.
    """
    if values.train_batch_size % values.num_accumulation_steps:
        raise InputError(
            f"--train_batch_size={values.train_batch_size} is no multiple of --num_accumulation_steps="
            f"{values.num_accumulation_steps}: the micro-batches of a batch must be of one size."
        )
    return {
        "num_accumulation_steps": values.num_accumulation_steps,
        "optimizer": {
            "optimizer": values.optimizer_type,
            "end_lr": values.end_lr,
            "power": values.poly_power,
            "layerwise_lr_decay": values.layerwise_lr_decay,
            "weight_decay_rate": values.weight_decay_rate,
            "beta_1": values.adam_beta_1,
            "beta_2": values.adam_beta_2,
            "epsilon": values.adam_epsilon,
        },
    }


def estimator_options(values):
    """Arguments of `bert.training.estimator.make`."""
    return {
        "save_checkpoints_steps": values.save_checkpoints_steps,
        "keep_checkpoint_max": values.keep_checkpoint_max,
        "iterations_per_loop": values.iterations_per_loop,
        "num_tpu_cores": values.num_tpu_cores if values["num_tpu_cores"].present else None,
    }


def trainer_options(values):
    """Those fields of a `bert.training.trainer.Trainer` that are flags."""
    return {
        "output_dir": values.output_dir,
        "seed": values.seed,
        "log_steps": values.log_steps,
        "compute_dtype": modeling.COMPUTE_DTYPES[values.dtype],
        "recompute_grad": values.recompute_grad,
        "estimator_options": estimator_options(values),
    }
