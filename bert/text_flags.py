"""Flags on how text becomes records, which several programs have."""

from absl import flags

from bert.data import chinese_words, workers
from bert.data.pretraining_data import Settings


def define():
    """Defines the flags."""
    flags.DEFINE_bool("do_lower_case", True, "Whether the vocabulary is uncased.")
    flags.DEFINE_bool("strip_accents", None, "Whether accents are removed. Default: as --do_lower_case.")
    flags.DEFINE_bool("do_whole_word_mask", False, "Whether all pieces of a word are masked together.")
    flags.DEFINE_enum(
        "whole_word_segmenter",
        None,
        chinese_words.SEGMENTERS,
        "Library that finds the words of Chinese text, whose characters --do_whole_word_mask then masks together; it "
        "comes with requirements-chinese.txt. Default: every character is a word.",
    )
    flags.DEFINE_integer("dupe_factor", 10, "How many times a document is used, with other masks.", lower_bound=1)
    flags.DEFINE_bool(
        "dynamic_masking",
        False,
        "Whether records hold text without masks, which are drawn anew each time it is read in training. "
        "--dupe_factor is 1 then, unless it is given.",
    )
    flags.DEFINE_bool(
        "pack_sequences",
        False,
        "Whether records hold as many pairs as fit into max_seq_length, each apart from the others: for text of short "
        "documents.",
    )
    flags.DEFINE_float("masked_lm_prob", 0.15, "Share of the tokens to predict.", lower_bound=0.0, upper_bound=1.0)
    flags.DEFINE_float(
        "short_seq_prob",
        0.1,
        "Share of the sequences that are made shorter.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    flags.DEFINE_bool("segment_sentences", False, "Whether lines hold paragraphs, to be split into sentences.")
    flags.DEFINE_string("input_encoding", "utf-8", "Encoding of the text.")
    flags.DEFINE_bool(
        "no_nsp", False, "Whether to leave out next sentence prediction: records hold one stretch of text."
    )
    flags.DEFINE_integer(
        "num_workers", workers.available_cores(), "Number of processes that make records.", lower_bound=1
    )


def settings(values, random_seed):
    """The `Settings` that the flags give, with the default lengths.

    Args:
      values: the parsed flags, `flags.FLAGS`.
      random_seed: int.
    """
    return Settings(
        do_lower_case=values.do_lower_case,
        strip_accents=values.strip_accents,
        do_whole_word_mask=values.do_whole_word_mask,
        whole_word_segmenter=values.whole_word_segmenter,
        dupe_factor=1 if values.dynamic_masking and not values["dupe_factor"].present else values.dupe_factor,
        dynamic_masking=values.dynamic_masking,
        pack_sequences=values.pack_sequences,
        masked_lm_prob=values.masked_lm_prob,
        short_seq_prob=values.short_seq_prob,
        segment_sentences=values.segment_sentences,
        input_encoding=values.input_encoding,
        no_nsp=values.no_nsp,
        random_seed=random_seed,
    )
