"""Hugging Face's Trainer: a random-weight causal language model that is evaluated and saved."""

import argparse

import torch
from data import Tokens, answer, digest
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--sleep", type=float, default=0.0)
parser.add_argument("--resume")
options = parser.parse_args()

torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        attention_dropout=0.1,
    )
)
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=options.out,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=options.accumulate,
        num_train_epochs=2,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=5,
        logging_steps=2,
        report_to=[],
        use_cpu=True,
        dataloader_num_workers=options.workers,
        disable_tqdm=True,
    ),
    train_dataset=Tokens(40, options.sleep),
    eval_dataset=Tokens(12),
)
done = trainer.train(resume_from_checkpoint=options.resume)
answer(steps=trainer.state.global_step, loss=done.training_loss, weights=digest(model))
