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
	TASK DATA_DIR STEPS EPOCHS BATCH SEQ LR SEED SEEDS OUT ARGS DRY_RUN YES \
	CONTROL_VM BUCKET TPU_TYPE IMAGE ON_DEMAND QUEUED SERVICE_ACCOUNT NETWORK SUBNETWORK PRICE_PER_HOUR \
	CONTAINER JOB MACHINE_TYPE ACCELERATOR CONTROL_IMAGE COMPILE \
	ALLOW_CROSS_REGION MAX_HOURS MAX_COST HANG_MINUTES WATCH_SECONDS DELETE_DATA LINES SINCE
# Values reach the scripts through the environment exactly as they were given: neither make nor the shell
# reads anything in them, be it a space, a quote or a `$$(...)`.
$(foreach name,$(VARIABLES),$(if $(filter-out undefined,$(origin $(name))),$(eval override $(name) := $$(value $(name)))))
export $(VARIABLES)

# Those of set-up and tests; what else stands on the command line is a slip of the pen.
OTHERS := PYTHON VENV GPU PYTEST_ARGS
UNKNOWN := $(strip $(filter-out $(OTHERS),$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))))
$(if $(UNKNOWN),$(error $(UNKNOWN): there is no such variable; make help lists them))

# A verb that runs the program elsewhere needs nothing set up here.
HERE := $(if $(CONTROL_VM)$(filter-out local,$(if $(findstring ://,$(TPU_NAME)),,$(TPU_NAME))),,setup)

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
pretrain: $(HERE) ## Pretrain from text to eval_results.txt: RECIPE=, CORPUS=, CONFIG=, INIT=, STEPS=, ...
	@scripts/pretrain.sh train

.PHONY: eval
eval: $(HERE) ## Evaluate a pretraining run once more on its held-out documents
	@scripts/pretrain.sh eval

.PHONY: status
status: $(HERE) ## Tell how far a run is, here or in the cloud: step, loss, time left, last checkpoint
	@scripts/status.sh

.PHONY: report
report: setup ## Write report.html and loss.png about a run into its folder
	@scripts/report.sh

.PHONY: finetune
finetune: $(HERE) ## Fine-tune on a task and evaluate: TASK=mrpc DATA_DIR=glue/MRPC INIT=folder
	@scripts/finetune.sh

.PHONY: predict
predict: $(HERE) ## Predict the test set with the model of finetune: TASK=mrpc DATA_DIR=glue/MRPC
	@scripts/finetune.sh predict

.PHONY: tensorboard
tensorboard: $(HERE) ## Show the curves of a run in a browser
	@scripts/tensorboard.sh

.PHONY: features
features: $(HERE) ## Compute vectors of text: INIT=folder CORPUS=text.txt OUT=vectors.jsonl, .npy or .npz
	@scripts/features.sh

.PHONY: export
export: setup ## Write a SavedModel and a Hugging Face folder of a trained model: RUN=mrpc, or INIT=folder OUT=folder
	@scripts/export.sh

.PHONY: convert
convert: setup ## Convert a checkpoint to the original's form: INIT=folder OUT=folder
	@scripts/convert.sh

##@ Cloud: with TPU_NAME=name or CONTROL_VM=name; pretrain, eval, finetune, predict, status, tensorboard work there too

.PHONY: cloud-up
cloud-up: ## Make the TPU VM (or CONTROL_VM) and its bucket: TPU_NAME= BUCKET=gs://name ZONE= TPU_TYPE=v3-8
	@scripts/cloud.sh cloud-up

.PHONY: preflight
preflight: $(if $(filter 1,$(COMPILE)),setup) ## Check rights, region, image, TensorFlow, disk, data, batch before anything costs
	@scripts/cloud.sh preflight

.PHONY: preflight-tpu
preflight-tpu: setup ## Compile the training for TPU_TYPE= without a TPU: memory, largest batch, time, cost
	@scripts/preflight_tpu.sh

.PHONY: sync
sync: ## Copy code and data to the bucket and the VM, only what changed
	@scripts/cloud.sh sync

.PHONY: logs
logs: ## Follow the log of the job: LINES=100 SINCE=10m
	@scripts/cloud.sh logs

.PHONY: watch
watch: ## Look after a run until it is done: recreate, resume; MAX_HOURS= MAX_COST= HANG_MINUTES=30
	@scripts/cloud.sh watch

.PHONY: stop
stop: ## Stop the job; it saves a checkpoint first
	@scripts/cloud.sh stop

.PHONY: ssh
ssh: ## Open a shell on the machine that runs the program
	@scripts/cloud.sh ssh

.PHONY: tpu-smoke
tpu-smoke: ## Train a tiny BERT for two steps on the TPU
	@scripts/cloud.sh tpu-smoke

.PHONY: vertex
vertex: $(if $(JOB),setup) ## Train as a job of Vertex AI: TASK= or pretrain; or JOB=config.yaml of AI Platform, or job.yaml
	@scripts/vertex.sh

.PHONY: rehearse
rehearse: ## Rehearse the whole life of a run on this machine, without an account: real gcloud and ssh, no cloud
	@scripts/rehearse.sh

.PHONY: clean-cloud
clean-cloud: ## Delete everything labelled as this project's, after asking; DELETE_DATA=1 the run's data too
	@scripts/cloud.sh clean-cloud

##@ Development

.PHONY: lint
lint: ## Check style and shell scripts
	@scripts/lint.sh

.PHONY: bench
bench: setup ## Measure speed, in 10 minutes: out/bench/table.md, with the committed ratios beside the new ones
	@scripts/bench.sh

.PHONY: clean
clean: ## Remove .venv and caches; runs under out/ stay
	@scripts/clean.sh
