# The verbs. Each sets up what it needs, runs one script, and can be repeated: it resumes, or says that it is done.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Your own settings, if you keep any: lines such as `CORPUS = my/*.txt`.
-include config.mk

RUN ?= pretrain
RECIPE ?= sample
DRY_RUN ?=
TPU_NAME ?=

VARIABLES := TPU_NAME ZONE PROJECT RUN CORPUS EVAL_CORPUS VOCAB VOCAB_SIZE CONFIG RECIPE INIT \
	TASK DATA_DIR STEPS EPOCHS BATCH SEQ LR SEED OUT ARGS DRY_RUN
# Values reach the scripts through the environment exactly as they were given: neither make nor the shell
# reads anything in them, be it a space, a quote or a `$$(...)`.
$(foreach name,$(VARIABLES),$(if $(filter-out undefined,$(origin $(name))),$(eval override $(name) := $$(value $(name)))))
export $(VARIABLES)

##@ Start here

.PHONY: help
help: ## List the verbs and the variables
	@scripts/help.sh Makefile

.PHONY: setup
setup: ## Make .venv from requirements.txt, if it is missing or stale
	@scripts/setup.sh

.PHONY: test
test: ## Run all tests, on the CPU
	@scripts/test.sh

##@ Data

.PHONY: vocab
vocab: setup ## Train a WordPiece vocabulary: CORPUS='my/*.txt' VOCAB_SIZE=8000 OUT=my/vocab.txt
	@scripts/vocab.sh

.PHONY: data
data: setup ## Make pretraining records: CORPUS='my/*.txt' VOCAB=vocab.txt SEQ=128 OUT=my/records
	@scripts/data.sh

##@ Training

.PHONY: pretrain
pretrain: setup ## Pretrain from text to eval_results.txt: RECIPE=, CORPUS=, CONFIG=, INIT=, STEPS=, ...
	@scripts/pretrain.sh train

.PHONY: eval
eval: setup ## Evaluate a pretraining run once more on its held-out documents
	@scripts/pretrain.sh eval

.PHONY: status
status: setup ## Tell how far a run is: step, loss, time left, last checkpoint
	@scripts/status.sh

.PHONY: report
report: setup ## Write report.html and loss.png about a run into its folder
	@scripts/report.sh

.PHONY: finetune
finetune: setup ## Fine-tune on a task and evaluate: TASK=mrpc DATA_DIR=glue/MRPC INIT=folder
	@scripts/finetune.sh

.PHONY: predict
predict: setup ## Predict the test set with the model of finetune: TASK=mrpc DATA_DIR=glue/MRPC
	@scripts/finetune.sh predict

.PHONY: tensorboard
tensorboard: setup ## Show the curves of a run in a browser
	@scripts/tensorboard.sh

.PHONY: convert
convert: setup ## Convert a checkpoint to the original's form: INIT=folder OUT=folder
	@scripts/convert.sh

##@ Development

.PHONY: lint
lint: ## Check style and shell scripts
	@scripts/lint.sh

.PHONY: clean
clean: ## Remove .venv and caches; runs under out/ stay
	@scripts/clean.sh
