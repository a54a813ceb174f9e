# A setting as OpenRLHF's users write it, for `nereus plan --compare`.
python3 -m openrlhf.cli.train_ppo_ray \
    --actor.num_nodes 1 --actor.num_gpus_per_node 8 \
    --critic.num_nodes 1 --critic.num_gpus_per_node 8 \
    --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
    --vllm.num_engines 4 --vllm.tensor_parallel_size 2 --vllm.gpu_memory_utilization 0.5 \
    --train.colocate_all --vllm.enable_sleep --ds.enable_sleep \
    --ds.zero_stage 3 --actor.gradient_checkpointing_enable \
    --train.batch_size 128 --train.micro_batch_size 4 \
    --rollout.batch_size 1024 --rollout.micro_batch_size 8 --rollout.n_samples_per_prompt 1 \
    --prompt_max_len 1024 --rollout.max_new_tokens 1024 \
    --algo.advantage.estimator gae --algo.kl.init_coef 0.01
