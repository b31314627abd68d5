"""The one form into which all others are read."""

import dataclasses

from bert import modeling


@dataclasses.dataclass
class Checkpoint:
    """A model's weights, and what came with them.

    Attributes:
      variables: dictionary of name (as in TensorFlow, without ":0") to array.
      config: the `BertConfig`, or None if no config was found.
      vocab_file: path of its vocabulary, or None if none was found.
      unused: names of what else is in the files, sorted.
    """

    variables: dict
    config: modeling.BertConfig = None
    vocab_file: str = None
    unused: tuple = ()
