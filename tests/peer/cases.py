"""Synthetic models of every architecture and tensor type, as options of `sluice synth`."""
MOE = "--experts 8 --top-k 2"
LONG = [(1, 1), (4, 650)]
CHOSEN = [(1, 1), (4, 320)]
MLA = "--heads 5 --head-dim 40 --rotated 16 --value-dim 24 --latent 96"
F32 = "-t F32 --embd-type F32 --output-type F32"
MXFP4 = "-t Q8_0 --gate MXFP4 --up MXFP4 --down MXFP4"
KL = 5e-3
REFERENCE = "reference"
CHOICES = "choices"
CASES = [
    # name, synth options, True (F32 bars), REFERENCE, CHOICES or the bar of the mean KL divergence, prompts other than PROMPTS
    ("qwen3moe f32", f"--arch qwen3moe {F32} {MOE}", True, LONG),
    ("qwen3moe f32, gqa 3, odd", f"--arch qwen3moe {F32} --experts 11 --top-k 5 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 48 --expert-ff 96 --rope-base 1000000", True, LONG),
    ("qwen2moe f32", f"--arch qwen2moe {F32} {MOE}", True, LONG),
    ("qwen2moe f32, gqa 3, odd", f"--arch qwen2moe {F32} --experts 13 --top-k 4 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 32 --expert-ff 96 --shared-ff 160", True, LONG),
    ("mixtral f32", f"--arch llama {F32} {MOE}", True, LONG),
    ("mixtral f32 rope_freqs", f"--arch llama {F32} {MOE} --rope-freqs", True),
    # With seed 1 a router's third and fourth score of row 527 are 9e-7 apart in double precision: rounding decides.
    ("mixtral f32, gqa 3, odd", f"--seed 3 --arch llama {F32} --experts 7 --top-k 3 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 48 --expert-ff 96 --tied", True, LONG),
    ("mixtral f32, beside double precision", f"--arch llama {F32} --experts 9 --top-k 4 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 32 --expert-ff 96 --rope-freqs", REFERENCE, LONG),
    ("olmoe f32", f"--arch olmoe {F32} {MOE} --embd 256 --heads 4 --kv-heads 4 --head-dim 64", True, LONG),
    ("olmoe f32, odd", f"--arch olmoe {F32} --experts 13 --top-k 5 --layers 5 --embd 192 --heads 6 --kv-heads 6 "
     "--head-dim 32 --expert-ff 96", True, LONG),
    ("ernie4_5-moe f32", f"--arch ernie4_5-moe {F32} {MOE} --dense-layers 1", True, LONG),
    ("ernie4_5-moe f32, all with experts", f"--arch ernie4_5-moe {F32} --experts 12 --top-k 3 --kv-heads 4", True, LONG),
    ("ernie4_5-moe f32, gqa 3, odd", f"--arch ernie4_5-moe {F32} --experts 11 --top-k 4 --layers 5 --dense-layers 2 "
     "--embd 192 --heads 6 --kv-heads 2 --head-dim 48 --expert-ff 96 --shared-ff 160 --ff 224 --tied", True, LONG),
    ("hunyuan-moe f32", f"--arch hunyuan-moe {F32} {MOE} --expert-ff 512", True, LONG),
    ("hunyuan-moe f32, gqa 3", f"--arch hunyuan-moe {F32} --experts 16 --top-k 4 --heads 6 --kv-heads 2 "
     "--head-dim 128 --expert-ff 512", True, LONG),
    ("ernie4_5-moe f32, groups", f"--arch ernie4_5-moe {F32} --experts 24 --top-k 4 --groups 4 --groups-used 2", True,
     LONG),
    # Longer than twice the window; 600 positions and more.
    ("gpt-oss f32", f"--arch gpt-oss {F32} --experts 8 --top-k 4 --expert-ff 256", True, LONG),
    ("gpt-oss f32, window 32, gqa 8", f"--arch gpt-oss {F32} --experts 16 --top-k 4 --heads 16 --kv-heads 2 "
     "--window 32 --layers 6", True, LONG),
    ("gpt-oss f32, window 200, head_dim 128", f"--arch gpt-oss {F32} --experts 8 --top-k 4 --heads 6 --kv-heads 2 "
     "--head-dim 128 --window 200 --layers 3", True, LONG),
    ("gpt-oss f32, window 1, gqa 1", f"--arch gpt-oss {F32} --experts 4 --top-k 4 --heads 4 --kv-heads 4 "
     "--head-dim 32 --window 1", True, LONG),
    ("gpt-oss f32, yarn", f"--arch gpt-oss {F32} --experts 8 --top-k 4 --yarn 32 --rope-base 150000 --window 128 "
     "--ctx 131072", True, LONG),
    ("gpt-oss f32, two rotations", f"--arch gpt-oss {F32} --experts 8 --top-k 4 --window 48 --window-rope-base 10000",
     True, LONG),
    # Longer than the peer's chunks of 64, and than two pages.
    ("qwen3next f32", f"--arch qwen3next {F32} {MOE} --layers 5 --rotated 32", True, LONG),
    ("qwen3next f32, 7 heads per key head, every 2nd attends", f"--arch qwen3next {F32} --experts 7 --top-k 3 "
     "--layers 4 --attn-every 2 --delta-heads 7 --delta-key-heads 1 --delta-dim 48 --heads 6 --kv-heads 2 "
     "--head-dim 96 --rotated 24 --embd 192 --shared-ff 96 --tied", True, LONG),
    ("qwen3next f32, heads of 128, interval 3, nextn", f"--arch qwen3next {F32} --experts 12 --top-k 5 --layers 6 "
     "--attn-every 3 --delta-heads 4 --delta-key-heads 2 --delta-dim 128 --nextn 1", True, LONG),
    ("qwen35moe f32", f"--arch qwen35moe {F32} {MOE} --layers 5 --rotated 32", True, LONG),
    ("qwen35moe f32, 3 heads per key head, every 2nd attends", f"--arch qwen35moe {F32} --experts 9 --top-k 3 "
     "--layers 4 --attn-every 2 --delta-heads 6 --delta-key-heads 2 --delta-dim 80 --heads 6 --kv-heads 3 "
     "--head-dim 64 --rotated 16 --embd 320 --nextn 1", True, LONG),
    ("qwen35 f32", f"--arch qwen35 {F32} --experts 0 --top-k 0 --layers 4 --rotated 16", True, LONG),
    ("qwen35 f32, one key head each, last attends", f"--arch qwen35 {F32} --experts 0 --top-k 0 --layers 3 "
     "--attn-every 3 --delta-heads 3 --delta-key-heads 3 --delta-dim 64 --heads 3 --kv-heads 1 --head-dim 128 "
     "--rotated 32 --ff 384 --tied", True, LONG),
    ("qwen3vlmoe f32", f"--arch qwen3vlmoe {F32} {MOE}", True, LONG),
    ("qwen3vlmoe f32, gqa 3", f"--arch qwen3vlmoe {F32} --experts 7 --top-k 3 --heads 6 --kv-heads 2 --head-dim 128",
     True, LONG),
    ("gemma4 f32", f"--arch gemma4 {F32} {MOE} --layers 6 --window-period 3 --window 48 --head-dim 128 "
     "--window-head-dim 64 --kv-heads 1 --window-kv-heads 2 --window-rope-base 10000 --softcap 30 --tied", True, LONG),
    ("gemma4 f32, gqa 3, odd", f"--arch gemma4 {F32} --experts 12 --top-k 5 --layers 5 --window-period 2 --window 33 "
     "--embd 192 --heads 6 --kv-heads 2 --window-kv-heads 3 --head-dim 64 --window-head-dim 96 --ff 160 --expert-ff 96 "
     "--window-rope-base 5000 --softcap 15", True, LONG),
    # llama.cpp's GELU is a table of half precision.
    ("gemma4 f32, beside double precision", f"--arch gemma4 {F32} {MOE} --layers 6 --window-period 3 --window 48 "
     "--head-dim 512 --window-head-dim 256 --kv-heads 1 --window-kv-heads 2 --window-rope-base 10000 --softcap 30 "
     "--tied",
     REFERENCE, LONG),
    ("gemma4 dense f32", f"--arch gemma4 {F32} --experts 0 --top-k 0 --layers 4 --window-period 2 --window 70 "
     "--window-rope-base 10000 --softcap 30", True, LONG),
    ("gemma4 f32, gate and up fused", f"--arch gemma4 {F32} --experts 7 --top-k 3 --layers 4 --window-period 2 "
     "--window 60 --window-rope-base 10000 --expert-ff 96 --softcap 30 --fused-experts", True, LONG),
    ("gemma4 q4_0, gate and up fused", f"--arch gemma4 -t Q4_0 --down Q8_0 {MOE} --layers 4 --window-period 2 "
     "--window 60 --window-rope-base 10000 --expert-ff 96 --softcap 30 --fused-experts", KL, LONG),
    ("qwen3next f32, gate and up fused", f"--arch qwen3next {F32} {MOE} --layers 4 --fused-experts", True, LONG),
    ("qwen35moe q4_K, gate and up fused", f"--arch qwen35moe -t Q4_K {MOE} --expert-ff 256 --layers 4 --rotated 16 "
     "--fused-experts", KL, LONG),
    ("llama4 f32", f"--arch llama4 {F32} --experts 8 --top-k 1 --layers 5", True, LONG),
    ("llama4 f32, every 2nd with experts, odd", f"--arch llama4 {F32} --experts 7 --top-k 1 --layers 6 --moe-step 2 "
     "--heads 6 --kv-heads 2 --head-dim 48 --embd 192 --expert-ff 96 --ff 160 --rope-base 500000 --tied", True, LONG),
    ("llama4 f32, 128 experts", f"--arch llama4 {F32} --experts 128 --top-k 1 --layers 4 --expert-ff 32 --rope-freqs",
     True, LONG),
    # Past the first chunk of positions, where queries of layers without rotation begin to grow.
    ("llama4 f32, 8400 positions", f"--arch llama4 {F32} --experts 4 --top-k 1 --layers 4 --embd 128 --heads 2 "
     "--kv-heads 1 --expert-ff 64 --ctx 16384", True, [(4, 8400)]),
    ("llama4 q4_K", "--arch llama4 -t Q4_K --experts 8 --top-k 1 --layers 4 --expert-ff 256", KL, LONG),
    ("afmoe f32", f"--arch afmoe {F32} {MOE} --layers 6 --window 48 --dense-layers 1", True, LONG),
    ("afmoe f32, gqa 3, odd", f"--arch afmoe {F32} --experts 12 --top-k 5 --layers 5 --window 33 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --ff 160 --expert-ff 96 --shared-ff 192 --router-scale 2.5 --window-period 2 --tied",
     True, LONG),
    ("afmoe q8_0", f"--arch afmoe -t Q8_0 {MOE} --layers 5 --window 48 --dense-layers 2", KL, LONG),
    ("laguna f32", f"--arch laguna {F32} {MOE} --layers 5 --window 48 --dense-layers 1 --gate-heads --heads 4 "
     "--window-heads 6 --kv-heads 2 --rotated 32 --window-rotated 64 --window-rope-base 10000 --yarn 8 --ctx 32768",
     True, LONG),
    ("laguna f32, gates of elements, odd", f"--arch laguna {F32} --experts 9 --top-k 4 --layers 5 --window 33 "
     "--embd 192 --heads 6 --kv-heads 3 --head-dim 32 --expert-ff 96 --shared-ff 160 --router-scale 2.5", True, LONG),
    ("laguna q8_0", f"--arch laguna -t Q8_0 {MOE} --layers 5 --window 48 --gate-heads", KL, LONG),
    ("cohere2moe f32", f"--arch cohere2moe {F32} {MOE} --layers 6 --window 48 --dense-layers 1", True, LONG),
    ("cohere2moe f32, odd", f"--arch cohere2moe {F32} --experts 9 --top-k 4 --layers 5 --window 33 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2 --window-period 3 --tied "
     "--fused-experts", True, LONG),
    ("cohere2moe q8_0", f"--arch cohere2moe -t Q8_0 {MOE} --layers 5 --window 48", KL, LONG),
    ("dbrx f32", f"--arch dbrx {F32} {MOE}", True, LONG),
    ("dbrx f32, gqa 3, odd", f"--arch dbrx {F32} --experts 12 --top-k 5 --embd 192 --heads 6 --kv-heads 2 --head-dim 32 "
     "--expert-ff 96 --layers 3", True, LONG),
    ("dbrx q4_K", f"--arch dbrx -t Q4_K {MOE} --expert-ff 256", KL, LONG),
    ("grok f32", f"--arch grok {F32} {MOE}", True, LONG),
    ("grok f32, dense part, odd", f"--arch grok {F32} --experts 7 --top-k 3 --embd 192 --heads 6 --kv-heads 3 "
     "--head-dim 32 --expert-ff 96 --ff 160 --beside --softcap 20 --tied", True, LONG),
    # llama.cpp's GELU is a table of half precision.
    ("grok f32, beside double precision", f"--arch grok {F32} --experts 8 --top-k 8 --beside --softcap 20", REFERENCE,
     LONG),
    ("grok q8_0", f"--arch grok -t Q8_0 {MOE} --beside", KL, LONG),
    ("mimo2 f32", f"--arch mimo2 {F32} {MOE} --layers 5 --window 48 --head-dim 96 --value-dim 64 --rotated 32 "
     "--window-kv-heads 4 --dense-layers 1 --window-rope-base 10000", True, LONG),
    ("mimo2 f32, odd, fused qkv", f"--arch mimo2 {F32} --experts 9 --top-k 4 --layers 4 --window 33 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --value-dim 32 --window-kv-heads 3 --expert-ff 96 --window-period 3 --fused-qkv",
     True, LONG),
    ("mimo2 q8_0", f"--arch mimo2 -t Q8_0 {MOE} --layers 5 --window 48 --head-dim 96 --value-dim 64", KL, LONG),
    ("mistral4 f32, tempered", f"--arch mistral4 {F32} {MOE} {MLA} --q-lora 48 --dense-layers 1 --temper 100", True,
     LONG),
    ("mistral4 f32, yarn, odd", f"--arch mistral4 {F32} --experts 7 --top-k 3 {MLA} --q-lora 40 --heads 7 --temper 33 "
     "--yarn 8 --yarn-multiplier 0.1 --ctx 32768 --fused-experts", True, LONG),
    ("mistral4 q8_0", f"--arch mistral4 -t Q8_0 {MOE} --heads 6 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 128 --q-lora 64 --temper 100", KL, LONG),
    ("arctic f32", f"--arch arctic {F32} {MOE}", True, LONG),
    ("arctic f32, gqa 3, odd", f"--arch arctic {F32} --experts 12 --top-k 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 32 --expert-ff 96 --layers 5 --tied", True, LONG),
    ("arctic q4_K", f"--arch arctic -t Q4_K {MOE} --expert-ff 256", KL, LONG),
    ("step35 f32", f"--arch step35 {F32} {MOE} --layers 6 --window 48 --dense-layers 1 --window-heads 6 --kv-heads 2 "
     "--window-rope-base 10000 --rope-freqs", True, LONG),
    ("step35 f32, odd", f"--arch step35 {F32} --experts 9 --top-k 4 --layers 5 --window 33 --embd 192 --heads 6 "
     "--kv-heads 3 --head-dim 32 --expert-ff 96 --shared-ff 160 --ff 160 --dense-layers 2 --window-period 2 "
     "--router-scale 2.5 --window-rope-base 5000 --window-rotated 16", True, LONG),
    ("step35 q8_0", f"--arch step35 -t Q8_0 {MOE} --layers 5 --window 48", KL, LONG),
    ("mistral3 f32, dense", f"--arch mistral3 {F32} --experts 0 --top-k 0 --yarn 32 --ctx 4096", True, LONG),
    ("mistral3 f32, experts, odd", f"--arch mistral3 {F32} --experts 7 --top-k 3 --heads 6 --kv-heads 2 --embd 192 "
     "--head-dim 32 --expert-ff 96 --yarn 9 --ctx 1000 --tied", True, LONG),
    ("mistral3 q4_K", "--arch mistral3 -t Q4_K --experts 0 --top-k 0 --yarn 32 --ctx 4096", KL, LONG),
    ("llama dense f32", f"--arch llama {F32} --experts 0 --top-k 0", True, LONG),
    ("qwen3 dense f32", f"--arch qwen3 {F32} --experts 0 --top-k 0", True, LONG),
    ("qwen2 dense f32", f"--arch qwen2 {F32} --experts 0 --top-k 0", True, LONG),
    ("llama dense f32, gqa 3, odd", f"--arch llama {F32} --experts 0 --top-k 0 --layers 5 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --ff 160 --tied", True, LONG),
    ("qwen3 dense f32, gqa 3, odd", f"--arch qwen3 {F32} --experts 0 --top-k 0 --layers 5 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --ff 160 --tied", True, LONG),
    ("qwen2 dense f32, gqa 3, odd", f"--arch qwen2 {F32} --experts 0 --top-k 0 --layers 5 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 32 --ff 160 --rope-base 1000000", True, LONG),
    ("llama dense q4_K", "--arch llama -t Q4_K --experts 0 --top-k 0", KL, LONG),
    ("qwen3 dense q4_K", "--arch qwen3 -t Q4_K --experts 0 --top-k 0", KL, LONG),
    ("qwen2 dense q8_0", "--arch qwen2 -t Q8_0 --experts 0 --top-k 0", KL, LONG),
    ("tied f32", f"--arch qwen3moe {F32} {MOE} --tied", True),
    ("yarn f32", f"--arch qwen3moe {F32} {MOE} --yarn 4", True),
    ("head_dim 96, gqa 1", f"--arch qwen3moe {F32} {MOE} --heads 3 --kv-heads 3 --head-dim 96", True),
    ("head_dim 128, gqa 3", f"--arch qwen3moe {F32} {MOE} --heads 6 --kv-heads 2 --head-dim 128", True),
    ("head_dim 32, gqa 8", f"--arch qwen3moe {F32} {MOE} --heads 16 --kv-heads 2 --head-dim 32", True),
    ("7 experts, top 1", f"--arch qwen3moe {F32} --experts 7 --top-k 1", True),
    ("12 experts, top 12", f"--arch qwen3moe {F32} --experts 12 --top-k 12", True),
    ("60 experts, top 4", f"--arch qwen2moe {F32} --experts 60 --top-k 4 --embd 192 --heads 3 "
     "--kv-heads 1 --expert-ff 96", True),
    # All experts chosen: over so many layers some router is near a tie, and rounding then picks another expert.
    ("24 layers", f"--arch qwen3moe {F32} --experts 4 --top-k 4 --layers 24", True),
    ("f16", f"--arch qwen3moe -t F16 --embd-type F16 --output-type F16 {MOE}", KL),
    ("bf16", f"--arch qwen3moe -t BF16 --embd-type BF16 --output-type BF16 {MOE}", KL),
    ("mixed Q4_K_M-like", f"--arch qwen3moe -t Q4_K --down Q6_K,Q4_K --attn Q4_K,Q5_K {MOE} --expert-ff 256",
     KL),
    ("qwen2moe q4_K", f"--arch qwen2moe -t Q4_K {MOE} --expert-ff 256", KL, LONG),
    ("mixtral q4_K", f"--arch llama -t Q4_K {MOE} --expert-ff 256", KL, LONG),
    ("olmoe q8_0", f"--arch olmoe -t Q8_0 {MOE} --kv-heads 4", KL, LONG),
    ("ernie4_5-moe q4_K", f"--arch ernie4_5-moe -t Q4_K {MOE} --expert-ff 256 --dense-layers 2 --tied", KL, LONG),
    ("hunyuan-moe q4_K", f"--arch hunyuan-moe -t Q4_K {MOE} --expert-ff 512", KL, LONG),
    ("gpt-oss mxfp4", f"--arch gpt-oss {MXFP4} --experts 8 --top-k 4 --expert-ff 256", KL, LONG),
    ("gpt-oss mxfp4, 32 experts, yarn", f"--arch gpt-oss {MXFP4} --experts 32 --top-k 4 --embd 480 --heads 16 "
     "--kv-heads 2 --expert-ff 480 --window 128 --yarn 32 --rope-base 150000 --ctx 131072 --layers 6", KL, LONG),
    ("gpt-oss q8_0", "--arch gpt-oss -t Q8_0 --experts 8 --top-k 4 --expert-ff 256", KL, LONG),
    ("gpt-oss q8_0, window 32, gqa 8", "--arch gpt-oss -t Q8_0 --experts 16 --top-k 4 --heads 16 --kv-heads 2 "
     "--window 32 --layers 6", KL, LONG),
    ("qwen3next q4_K", f"--arch qwen3next -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 4 --rotated 16 "
     "--delta-heads 8 --delta-dim 64", KL, LONG),
    ("qwen35moe q4_K", f"--arch qwen35moe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 4 --rotated 16 "
     "--delta-heads 8 --delta-dim 64", KL, LONG),
    ("qwen35 q8_0", "--arch qwen35 -t Q8_0 --experts 0 --top-k 0 --layers 4 --rotated 16", KL, LONG),
    ("qwen3vlmoe q4_K", f"--arch qwen3vlmoe -t Q4_K {MOE} --expert-ff 256", KL, LONG),
    ("deepseek2 f32", f"--arch deepseek2 {F32} {MOE} {MLA} --q-lora 48 --dense-layers 1", True, LONG),
    # llama.cpp takes a model for one without q_lora by its 27 layers; all experts chosen, as in "24 layers".
    ("deepseek2 f32, lite", f"--arch deepseek2 {F32} --experts 4 --top-k 4 --layers 27 --dense-layers 1 --embd 128 "
     "--heads 3 --head-dim 48 --rotated 16 --value-dim 40 --latent 64 --expert-ff 64 --shared-ff 128 --ff 192", True,
     LONG),
    ("deepseek2 f32, joined kv_b", f"--arch deepseek2 {F32} --experts 4 --top-k 4 {MLA} --q-lora 40 --joined-kv "
     "--heads 7", True, LONG),
    ("deepseek2 f32, lite, joined kv_b, yarn", f"--arch deepseek2 {F32} --experts 4 --top-k 4 --layers 27 "
     "--dense-layers 2 --embd 128 --heads 2 --head-dim 48 --rotated 16 --value-dim 32 --latent 32 --expert-ff 64 "
     "--shared-ff 64 --ff 192 --joined-kv --yarn 40 --yarn-multiplier 0.0707 --ctx 163840", True, LONG),
    # llama.cpp's flash attention adds values in half precision, and does so with heads' own values: 1.6e-2.
    ("deepseek2 f32, joined kv_b, yarn", f"--arch deepseek2 {F32} --experts 4 --top-k 4 {MLA} --q-lora 48 --joined-kv "
     "--yarn 32 --yarn-multiplier 0.1 --ctx 131072", REFERENCE, LONG),
    ("deepseek2 f32, joined kv_b, yarn without a multiplier", f"--arch deepseek2 {F32} --experts 4 --top-k 4 {MLA} "
     "--q-lora 48 --joined-kv --yarn 32 --ctx 131072", REFERENCE, LONG),
    ("deepseek2 f32, beside double precision", f"--arch deepseek2 {F32} --experts 4 --top-k 4 {MLA} --q-lora 48 "
     "--dense-layers 1 --sigmoid --router-scale 2.5 --yarn 8 --yarn-multiplier 0.1 --ctx 32768", REFERENCE, LONG),
    ("deepseek2 f32, sigmoid and bias", f"--arch deepseek2 {F32} --experts 12 --top-k 3 {MLA} --q-lora 56 --sigmoid "
     "--router-scale 2.5 --dense-layers 2 --tied", True, LONG),
    ("deepseek2 f32, groups", f"--arch deepseek2 {F32} --experts 16 --top-k 3 --groups 4 --groups-used 2 {MLA} "
     "--q-lora 56 --sigmoid --router-scale 2.5", True, LONG),
    ("deepseek2 f32, yarn", f"--arch deepseek2 {F32} {MOE} {MLA} --q-lora 48 --yarn 32 --yarn-multiplier 0.1 "
     "--ctx 131072 --rope-base 50000 --sigmoid", True, LONG),
    ("deepseek2 f32, yarn without a multiplier", f"--arch deepseek2 {F32} {MOE} {MLA} --q-lora 48 --yarn 4", True, LONG),
    # As Mistral Large 3's files.
    ("deepseek2 f32, tempered", f"--arch deepseek2 {F32} {MOE} {MLA} --q-lora 48 --dense-layers 1 --temper 100 --yarn 16 "
     "--ctx 65536", True, LONG),
    ("deepseek2 f32, 20 heads of 256", f"--arch deepseek2 {F32} {MOE} --heads 20 --head-dim 256 --rotated 64 "
     "--value-dim 256 --latent 512 --q-lora 192 --layers 2 --nextn 1 --sigmoid", True, LONG),
    # More positions than an indexer chooses. So many heads that no score is a sum of nothing but zeros: of equal scores
    # llama.cpp takes any. Where rounding decides at the edge of a choice, one position more or less moves a row past the
    # bar: in these no row is at that edge. Heads of other sizes than powers of two end llama.cpp's process.
    ("deepseek32 f32, four indexers", f"--arch deepseek32 {F32} {MOE} {MLA} --q-lora 48 --dense-layers 1 --index-heads 17 "
     "--index-dim 64 --index-top 96", True, LONG),
    ("deepseek32 f32, four indexers, odd, yarn", f"--seed 2 --arch deepseek32 {F32} --experts 7 --top-k 3 {MLA} "
     "--q-lora 56 --index-heads 19 --index-dim 128 --index-top 70 --sigmoid --yarn 8 --yarn-multiplier 0.1", True, CHOSEN),
    ("glm-dsa f32, an indexer", f"--arch glm-dsa {F32} {MOE} {MLA} --q-lora 48 --dense-layers 1 --index-heads 17 "
     "--index-dim 64 --index-top 100 --index-every 8 --sigmoid", True, LONG),
    ("glm-dsa f32, an indexer in every second layer", f"--arch glm-dsa {F32} {MOE} {MLA} --q-lora 48 --layers 5 "
     "--dense-layers 2 --index-heads 23 --index-dim 128 --index-top 128 --index-every 2 --sigmoid --nextn 1", True, CHOSEN),
    ("deepseek32 f32, beside double precision, yarn", f"--arch deepseek32 {F32} --experts 7 --top-k 3 {MLA} --q-lora 56 "
     "--index-heads 19 --index-dim 64 --index-top 70 --sigmoid --yarn 8 --yarn-multiplier 0.1", CHOICES, LONG),
    ("deepseek32 f32, beside double precision, few heads of 48", f"--seed 3 --arch deepseek32 {F32} {MOE} {MLA} --q-lora 48 "
     "--dense-layers 1 --index-heads 3 --index-dim 48 --index-top 130", CHOICES, LONG),
    ("glm-dsa f32, beside double precision", f"--seed 2 --arch glm-dsa {F32} --experts 7 --top-k 3 {MLA} --q-lora 56 "
     "--layers 5 --dense-layers 2 --nextn 1 --index-heads 19 --index-dim 64 --index-top 70 --index-every 2 --sigmoid", CHOICES,
     LONG),
    ("qwen4exp f32", f"--arch qwen4exp {F32} {MOE} --layers 5 --rotated 32 --index-top 1024 --index-block 4", True, LONG),
    ("qwen4exp f32, odd", f"--seed 3 --arch qwen4exp {F32} --experts 11 --top-k 3 --layers 6 --embd 180 --heads 6 --kv-heads 2 "
     "--head-dim 48 --rotated 20 --delta-heads 6 --delta-key-heads 3 --delta-dim 16 --attn-every 3 --taps 3 --out-lora 20 "
     "--index-heads 3 --index-dim 40 --index-top 1024 --index-block 8 --ngram-heads 3 --ngram-rows 1009", True, LONG),
    ("qwen4exp f32, an n-gram layer first", f"--seed 4 --arch qwen4exp {F32} {MOE} --layers 4 --attn-every 2 --ngram-heads 1 "
     "--ngram-rows 7 --index-top 1024 --index-block 64", True, LONG),
    # llama.cpp fills a choice of whole blocks up with some of another block's positions.
    ("qwen4exp f32, chosen blocks", f"--seed 5 --arch qwen4exp {F32} {MOE} --layers 5 --rotated 32 --index-heads 5 --index-top 96 "
     "--index-block 4", CHOICES, LONG),
    ("qwen4exp f32, chosen blocks, odd", f"--seed 6 --arch qwen4exp {F32} --experts 11 --top-k 3 --layers 6 --embd 180 --heads 6 "
     "--kv-heads 2 --head-dim 48 --rotated 20 --delta-heads 6 --delta-key-heads 3 --delta-dim 16 --attn-every 3 --taps 3 "
     "--out-lora 20 --index-heads 7 --index-dim 40 --index-top 64 --index-block 8 --ngram-heads 3", CHOICES, LONG),
    # More blocks than an indexer chooses, and more positions than a window has. Many heads, as above.
    ("deepseek4 f32", f"--seed 2 --arch deepseek4 {F32} {MOE} --head-dim 64 --rotated 16 --index-heads 17 --index-dim 64 "
     "--index-top 48", True, CHOSEN),
    ("deepseek4 f32, all blocks", f"--arch deepseek4 {F32} {MOE} --head-dim 64 --rotated 16 --index-top 1000", True, LONG),
    ("deepseek4 f32, odd, yarn", f"--seed 1 --arch deepseek4 {F32} --experts 7 --top-k 3 --layers 5 --embd 192 --heads 6 "
     "--head-dim 96 --rotated 32 --q-lora 40 --out-groups 3 --out-lora 20 --index-heads 19 --index-dim 64 --index-top 37 "
     "--window 50 --table-layers 2 --yarn 8 --rope-base 1e4 --router-scale 1.5", True, LONG),
    ("deepseek4 f32, six layers, five by a table", f"--seed 2 --arch deepseek4 {F32} --experts 12 --top-k 4 --layers 6 "
     "--heads 5 --head-dim 48 --rotated 8 --out-groups 1 --out-lora 64 --index-heads 23 --index-dim 64 --index-top 60 "
     "--window 100 --table-layers 5", True, LONG),
    ("deepseek4 q8_0", f"--arch deepseek4 -t Q8_0 {MOE} --head-dim 64 --rotated 32 --index-heads 18 --index-dim 64 "
     "--index-top 100", KL, LONG),
    ("deepseek4 q4_K", f"--arch deepseek4 -t Q4_K {MOE} --head-dim 128 --rotated 64 --q-lora 256 --out-lora 256 --expert-ff 256 "
     "--index-heads 18 --index-dim 128 --index-top 64", KL, LONG),
    ("deepseek32 q8_0, four indexers", f"--arch deepseek32 -t Q8_0 {MOE} --heads 6 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 128 --q-lora 64 --index-heads 18 --index-dim 128 --index-top 128", KL, LONG),
    ("glm-dsa q4_K, an indexer", f"--arch glm-dsa -t Q4_K {MOE} --heads 4 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 256 --q-lora 256 --expert-ff 256 --index-heads 18 --index-dim 128 --index-top 128 --index-every 3 --sigmoid",
     KL, LONG),
    ("deepseek2 q8_0", f"--arch deepseek2 -t Q8_0 {MOE} --heads 6 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 128 --q-lora 64 --dense-layers 1 --sigmoid", KL, LONG),
    ("deepseek2 q4_K, joined kv_b", f"--arch deepseek2 -t Q4_K {MOE} --heads 4 --head-dim 96 --rotated 32 "
     "--value-dim 64 --latent 256 --q-lora 256 --expert-ff 256 --joined-kv --dense-layers 1", KL, LONG),
    ("minimax-m2 f32", f"--arch minimax-m2 {F32} {MOE} --rotated 32", True, LONG),
    ("minimax-m2 f32, gqa 3, odd", f"--arch minimax-m2 {F32} --experts 13 --top-k 5 --layers 3 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --rotated 16 --expert-ff 96 --rope-base 5e6", True, LONG),
    ("minimax-m2 q4_K", f"--arch minimax-m2 -t Q4_K --down Q6_K {MOE} --expert-ff 256 --rotated 32", KL, LONG),
    # Blocks that do not divide 256 end llama.cpp's process.
    ("minimax-m3 f32", f"--arch minimax-m3 {F32} {MOE} --layers 4 --dense-layers 1 --rotated 32 --shared-ff 128 "
     "--index-block 16 --index-top 4 --router-scale 2", True, LONG),
    # With seed 1 row 84 is where rounding decides which block an indexer chooses: llama.cpp's own builds for the CPU differ.
    ("minimax-m3 f32, gqa 3, three near, two shared, odd", f"--seed 3 --arch minimax-m3 {F32} --experts 13 --top-k 5 --layers 5 "
     "--embd 192 --heads 6 --kv-heads 2 --head-dim 48 --rotated 16 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2 "
     "--index-dim 40 --index-block 8 --index-top 5 --index-local 3 --rope-base 5e6", True, LONG),
    ("minimax-m3 f32, beside double precision", f"--arch minimax-m3 {F32} --experts 13 --top-k 5 --layers 5 "
     "--embd 192 --heads 6 --kv-heads 2 --head-dim 48 --rotated 16 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2 "
     "--index-dim 40 --index-block 8 --index-top 5 --index-local 3 --rope-base 5e6", CHOICES, LONG),
    ("minimax-m3 f32, blocks of 128, gqa 1, none dense", f"--arch minimax-m3 {F32} {MOE} --layers 3 --kv-heads 4 "
     "--rotated 32 --shared-ff 128 --index-dim 128 --index-block 128 --index-top 3", True, LONG),
    ("minimax-m3 q4_K", f"--arch minimax-m3 -t Q4_K --down Q6_K {MOE} --expert-ff 256 --shared-ff 256 --layers 4 "
     "--dense-layers 1 --rotated 32 --index-block 32 --index-top 4", KL, LONG),
    ("dots3note f32", f"--arch dots3note {F32} {MOE} {MLA} --q-lora 48 --layers 4 --dense-layers 1 --shared-ff 128 "
     "--window 48 --window-rope-base 10000 --index-heads 18 --index-dim 64 --index-top 128 --sigmoid", True, CHOSEN),
    ("dots3note f32, two shapes, two shared, nextn, odd", f"--arch dots3note {F32} --experts 13 --top-k 5 --layers 5 "
     "--embd 192 --heads 5 --head-dim 40 --rotated 16 --value-dim 24 --latent 96 --window-heads 3 --window-head-dim 56 "
     "--window-value-dim 32 --window-latent 64 --q-lora 56 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2 "
     "--window 33 --window-period 3 --window-rope-base 5000 --index-heads 19 --index-dim 64 --index-top 100 --sigmoid "
     "--router-scale 2.5 --nextn 1", True, CHOSEN),
    ("dots3note q8_0", f"--arch dots3note -t Q8_0 {MOE} --heads 6 --head-dim 96 --rotated 32 --value-dim 64 --latent 128 "
     "--q-lora 64 --window 48 --window-latent 96 --index-heads 18 --index-dim 128 --index-top 128 --sigmoid", KL, LONG),
    ("dots1 f32", f"--arch dots1 {F32} {MOE} --kv-heads 4 --dense-layers 1 --router-scale 2.5", True, LONG),
    ("dots1 f32, heads of 96, odd", f"--arch dots1 {F32} --experts 14 --top-k 6 --layers 5 --embd 192 --heads 3 "
     "--kv-heads 3 --head-dim 96 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2", True, LONG),
    ("dots1 q4_K", f"--arch dots1 -t Q4_K --down Q6_K {MOE} --kv-heads 4 --expert-ff 256 --dense-layers 1", KL, LONG),
    ("deepseek f32", f"--arch deepseek {F32} {MOE} --dense-layers 1", True, LONG),
    ("deepseek f32, one key head each, odd", f"--arch deepseek {F32} --experts 13 --top-k 6 --layers 5 --embd 192 "
     "--heads 6 --kv-heads 6 --head-dim 32 --expert-ff 96 --shared-ff 192 --ff 352 --dense-layers 2 --rope-base 10000 "
     "--tied", True, LONG),
    ("deepseek q4_K", f"--arch deepseek -t Q4_K --down Q6_K {MOE} --expert-ff 256 --dense-layers 1", KL, LONG),
    ("bailingmoe f32", f"--arch bailingmoe {F32} {MOE}", True, LONG),
    ("bailingmoe f32, gqa 3, odd", f"--arch bailingmoe {F32} --experts 11 --top-k 6 --layers 5 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --expert-ff 96 --shared-ff 192 --rope-base 600000", True, LONG),
    ("bailingmoe q4_K", f"--arch bailingmoe -t Q4_K --down Q6_K {MOE} --expert-ff 256", KL, LONG),
    ("bailingmoe2 f32", f"--arch bailingmoe2 {F32} --experts 16 --top-k 4 --groups 4 --groups-used 2 --fused-qkv "
     "--rotated 32 --dense-layers 1 --router-scale 2.5 --nextn 1", True, LONG),
    ("bailingmoe2 f32, gqa 4, two shared, odd", f"--arch bailingmoe2 {F32} --experts 15 --top-k 5 --layers 5 --embd 192 "
     "--heads 4 --kv-heads 1 --head-dim 48 --rotated 24 --expert-ff 96 --shared-ff 192 --ff 160 --dense-layers 2 "
     "--fused-qkv --groups 5 --groups-used 3", True, LONG),
    ("bailingmoe2 q4_K", "--arch bailingmoe2 -t Q4_K --down Q6_K --experts 16 --top-k 4 --groups 4 --groups-used 2 "
     "--fused-qkv --rotated 32 --expert-ff 256 --dense-layers 1", KL, LONG),
    ("hy_v3 f32", f"--arch hy_v3 {F32} {MOE} --dense-layers 1 --router-scale 2.5 --nextn 1", True, LONG),
    ("hy_v3 f32, gqa 3, odd", f"--arch hy_v3 {F32} --experts 13 --top-k 5 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 48 --expert-ff 96 --shared-ff 160 --ff 224 --dense-layers 2 --tied", True, LONG),
    ("hy_v3 q4_K", f"--arch hy_v3 -t Q4_K --down Q6_K {MOE} --expert-ff 256 --dense-layers 1", KL, LONG),
    ("mellum f32", f"--arch mellum {F32} {MOE} --layers 5 --window 48 --yarn 8 --ctx 32768", True, LONG),
    ("mellum f32, gqa 3, odd", f"--arch mellum {F32} --experts 11 --top-k 4 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 48 --expert-ff 96 --window 33 --window-period 2", True, LONG),
    ("mellum q4_K", f"--arch mellum -t Q4_K --down Q6_K {MOE} --expert-ff 256 --window 48", KL, LONG),
    ("granitemoe f32", f"--arch granitemoe {F32} {MOE} --shared-ff 0", True, LONG),
    ("granitemoe f32, shared, gqa 3, odd", f"--arch granitemoe {F32} --experts 13 --top-k 6 --layers 5 --embd 192 "
     "--heads 6 --kv-heads 2 --head-dim 32 --expert-ff 96 --shared-ff 160 --rope-base 10000 --tied", True, LONG),
    ("granitemoe q4_K", f"--arch granitemoe -t Q4_K --down Q6_K {MOE} --expert-ff 256", KL, LONG),
    ("exaone-moe f32", f"--arch exaone-moe {F32} {MOE} --layers 5 --dense-layers 1 --window 48 --router-scale 2.5 "
     "--nextn 1 --window-period 4", True, LONG),
    ("exaone-moe f32, gqa 3, odd", f"--arch exaone-moe {F32} --experts 11 --top-k 4 --layers 6 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 48 --expert-ff 96 --shared-ff 160 --ff 224 --dense-layers 2 --window 33 "
     "--window-period 3", True, LONG),
    ("exaone-moe q4_K", f"--arch exaone-moe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --dense-layers 1 --window 48",
     KL, LONG),
    # llama.cpp's window is 4096, whatever the file says; and it rotates all layers of a model of four.
    ("smallthinker f32", f"--arch smallthinker {F32} {MOE} --layers 5 --window 4096 --ctx 16384", True, LONG),
    ("smallthinker f32, 4500 positions, gqa 3, odd", f"--arch smallthinker {F32} --experts 11 --top-k 4 --layers 3 "
     "--embd 96 --heads 3 --kv-heads 1 --head-dim 32 --expert-ff 96 --window 4096 --ctx 16384 --tied", True,
     [(4, 4500)]),
    ("smallthinker q4_K", f"--arch smallthinker -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 3 --window 4096 "
     "--ctx 16384", KL, LONG),
    # E2B and E4B: embeddings of layers, shared keys and values.
    ("gemma4 f32, small", f"--arch gemma4 {F32} --experts 0 --top-k 0 --layers 8 --window 40 --window-period 2 "
     "--layer-embd 32 --shared-kv 4 --window-head-dim 32 --window-rope-base 10000 --softcap 30",
     True, LONG),
    ("gemma4 f32, small, gqa 3, odd", f"--arch gemma4 {F32} --experts 0 --top-k 0 --layers 7 --embd 192 --heads 6 "
     "--kv-heads 2 --head-dim 64 --window-head-dim 48 --window 33 --window-period 3 --layer-embd 40 --shared-kv 4 "
     "--ff 224 --window-rope-base 5000 --softcap 20", True, LONG),
    ("gemma4 f32, embeddings of layers alone, experts", f"--arch gemma4 {F32} --experts 7 --top-k 3 --layers 4 "
     "--window 40 --window-period 2 --layer-embd 24 --window-rope-base 10000 --softcap 30", True, LONG),
    ("gemma4 q4_K, small", f"--arch gemma4 -t Q4_K --experts 0 --top-k 0 --layers 8 --window 40 --window-period 2 "
     "--layer-embd 256 --shared-kv 4 --window-head-dim 32 --window-rope-base 10000 --softcap 30", KL, LONG),
    ("maple f32", f"--arch maple {F32} {MOE} --layers 5 --window 48", True, LONG),
    ("maple f32, gqa 3, odd", f"--arch maple {F32} --experts 11 --top-k 4 --layers 5 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 48 --expert-ff 96 --window 33 --window-period 3 --window-rope-base 10000", True, LONG),
    ("maple q4_K", f"--arch maple -t Q4_K --down Q6_K {MOE} --expert-ff 256 --window 48", KL, LONG),
    # The context is more than the original one: long factors. llama.cpp goes by the session's context.
    ("phimoe f32", f"--arch phimoe {F32} {MOE}", True, LONG),
    ("phimoe f32, long factors, gqa 3, odd", f"--arch phimoe {F32} --experts 11 --top-k 3 --layers 5 --embd 288 --heads 6 "
     "--kv-heads 2 --head-dim 48 --expert-ff 96 --ctx 8192 --rope-base 10000", True, LONG),
    ("phimoe q4_K", f"--arch phimoe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --ctx 8192", KL, LONG),
    ("lfm2moe f32", f"--arch lfm2moe {F32} {MOE} --layers 5 --attn-every 3 --taps 3 --dense-layers 1 --tied", True, LONG),
    ("lfm2moe f32, gqa 3, 5 taps, odd", f"--arch lfm2moe {F32} --experts 11 --top-k 4 --layers 6 --embd 288 --heads 6 "
     "--kv-heads 2 --head-dim 48 --expert-ff 96 --ff 224 --dense-layers 2 --attn-every 4 --taps 5", True, LONG),
    ("lfm2moe q4_K", f"--arch lfm2moe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 5 --attn-every 3 --taps 3 "
     "--dense-layers 1", KL, LONG),
    ("granitehybrid f32", f"--arch granitehybrid {F32} {MOE} --layers 5 --attn-every 3 --delta-heads 8 --delta-dim 64 "
     "--delta-key-heads 1 --state-dim 64 --no-rope", True, LONG),
    ("granitehybrid f32, two groups, rotated, gqa 3, odd", f"--arch granitehybrid {F32} --experts 13 --top-k 6 --layers 6 "
     "--embd 192 --heads 6 --kv-heads 2 --head-dim 32 --expert-ff 96 --shared-ff 160 --rope-base 10000 --tied "
     "--attn-every 4 --delta-heads 12 --delta-dim 32 --delta-key-heads 2 --state-dim 36 --taps 3", True, LONG),
    ("granitehybrid q4_K", f"--arch granitehybrid -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 5 --attn-every 3 "
     "--delta-heads 8 --delta-dim 64 --delta-key-heads 1 --state-dim 64", KL, LONG),
    ("jamba f32", f"--arch jamba {F32} {MOE} --layers 5 --attn-every 3 --moe-step 2 --expert-ff 128 --ff 128 --delta-dim 24 "
     "--state-dim 16 --tied", True, LONG),
    ("jamba f32, gqa 3, odd", f"--arch jamba {F32} --experts 11 --top-k 3 --layers 6 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 32 --expert-ff 96 --ff 96 --attn-every 4 --moe-step 3 --delta-dim 20 --state-dim 13 --taps 3", True, LONG),
    ("jamba q4_K", f"--arch jamba -t Q4_K --down Q6_K {MOE} --expert-ff 256 --ff 256 --layers 5 --attn-every 3 --moe-step 2 "
     "--delta-dim 32 --state-dim 16", KL, LONG),
    ("kimi-linear f32", f"--arch kimi-linear {F32} {MOE} {MLA} --layers 6 --attn-every 3 --delta-dim 32 --dense-layers 1 "
     "--router-scale 2.446 --shared-ff 128", True, LONG),
    ("kimi-linear f32, 3 heads of 64, two shared, odd", f"--arch kimi-linear {F32} --experts 11 --top-k 4 --layers 5 "
     "--attn-every 4 --embd 192 --heads 3 --head-dim 48 --rotated 16 --value-dim 40 --latent 64 --delta-dim 64 --taps 3 "
     "--expert-ff 96 --shared-ff 192 --ff 224 --dense-layers 2", True, LONG),
    ("kimi-linear q4_K", f"--arch kimi-linear -t Q4_K --down Q6_K {MOE} --heads 4 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 256 --delta-dim 64 --layers 6 --attn-every 3 --expert-ff 256 --shared-ff 256 --dense-layers 1", KL, LONG),
    ("kimi-k3 f32", f"--arch kimi-k3 {F32} {MOE} {MLA} --layers 7 --attn-every 3 --delta-dim 32 --dense-layers 1 "
     "--router-scale 2.5 --shared-ff 128 --expert-latent 64", True, LONG),
    ("kimi-k3 f32, low rank, blocks of 3, 3 heads of 64, two shared, odd", f"--arch kimi-k3 {F32} --experts 11 --top-k 4 "
     "--layers 8 --attn-every 4 --embd 192 --heads 3 --head-dim 48 --rotated 16 --value-dim 40 --latent 64 --q-lora 56 "
     "--delta-dim 64 --taps 3 --expert-ff 96 --shared-ff 192 --ff 224 --dense-layers 2 --keep-every 3 --expert-latent 72",
     True, LONG),
    ("kimi-k3 f32, each layer kept, experts of whole rows", f"--arch kimi-k3 {F32} {MOE} {MLA} --layers 5 --attn-every 3 "
     "--delta-dim 32 --shared-ff 128 --keep-every 1", True, LONG),
    ("kimi-k3 f32, nothing kept", f"--arch kimi-k3 {F32} {MOE} {MLA} --layers 5 --attn-every 3 --delta-dim 32 "
     "--shared-ff 128 --keep-every 0 --expert-latent 96", True, LONG),
    # The experts' sum is normed: with two of eight a choice that rounding changes shows in a mean KL of 9e-3.
    ("kimi-k3 q4_K", f"--arch kimi-k3 -t Q4_K --down Q6_K --experts 8 --top-k 6 --heads 4 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 256 --q-lora 256 --delta-dim 64 --layers 6 --attn-every 3 --expert-ff 256 --shared-ff 256 --dense-layers 1 "
     "--expert-latent 256 --keep-every 4", KL, LONG),
    ("bailingmoe3 f32", f"--arch bailingmoe3 {F32} {MOE} {MLA} --layers 6 --attn-every 3 --delta-dim 32 --dense-layers 1 "
     "--router-scale 2.5 --shared-ff 128 --rope-base 10000", True, LONG),
    ("bailingmoe3 f32, low rank, groups, yarn, nextn, 3 heads of 64, two shared, odd", f"--arch bailingmoe3 {F32} "
     "--experts 12 --top-k 4 --groups 4 --groups-used 2 --layers 5 --attn-every 4 --embd 192 --heads 3 --head-dim 48 "
     "--rotated 16 --value-dim 40 --latent 64 --q-lora 56 --delta-dim 64 --taps 3 --expert-ff 96 --shared-ff 192 --ff 224 "
     "--dense-layers 2 --yarn 4 --rope-base 10000 --nextn 1", True, LONG),
    ("bailingmoe3 q4_K", f"--arch bailingmoe3 -t Q4_K --down Q6_K {MOE} --heads 4 --head-dim 96 --rotated 32 --value-dim 64 "
     "--latent 256 --q-lora 256 --delta-dim 64 --layers 6 --attn-every 3 --expert-ff 256 --shared-ff 256 --dense-layers 1",
     KL, LONG),
    ("nemotron_h_moe f32", f"--arch nemotron_h_moe {F32} {MOE} --layers 7 --pattern MEM*E --delta-heads 8 --delta-dim 64 "
     "--delta-key-heads 2 --state-dim 64 --router-scale 2.5", True, LONG),
    ("nemotron_h_moe f32, latents, groups, nextn, gqa 3, odd", f"--arch nemotron_h_moe {F32} --experts 12 --top-k 5 "
     "--layers 9 --pattern EM*MEE --embd 192 --heads 6 --kv-heads 2 --head-dim 48 --expert-ff 96 --shared-ff 160 "
     "--expert-latent 72 --groups 4 --groups-used 2 --delta-heads 12 --delta-dim 32 --delta-key-heads 3 --state-dim 36 "
     "--taps 3 --nextn 1 --tied", True, LONG),
    ("nemotron_h_moe q4_K", f"--arch nemotron_h_moe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 7 --pattern MEM*E "
     "--delta-heads 8 --delta-dim 64 --delta-key-heads 2 --state-dim 64", KL, LONG),
    ("nemotron_h f32", f"--arch nemotron_h {F32} --experts 0 --top-k 0 --layers 6 --embd 192 --heads 6 --kv-heads 2 "
     "--head-dim 32 --ff 224 --pattern EM*M --delta-heads 6 --delta-dim 32 --delta-key-heads 2 --state-dim 40", True, LONG),
    ("nemotron_h f32, one group, 3 taps, gqa 5, odd", f"--arch nemotron_h {F32} --experts 0 --top-k 0 --layers 7 --embd 160 "
     "--heads 5 --kv-heads 1 --head-dim 48 --ff 352 --pattern MME*E --delta-heads 9 --delta-dim 16 --delta-key-heads 1 "
     "--state-dim 24 --taps 3 --tied", True, LONG),
    ("nemotron_h q4_K", "--arch nemotron_h -t Q4_K --down Q6_K --experts 0 --top-k 0 --layers 6 --ff 512 --pattern EM*M "
     "--delta-heads 8 --delta-dim 64 --delta-key-heads 2 --state-dim 64", KL, LONG),
    ("grovemoe f32", f"--arch grovemoe {F32} {MOE} --layers 4", True, LONG),
    # With fewer adjugate experts than a row uses of the others llama.cpp ends its process.
    ("grovemoe f32, three share one, gqa 3, odd", f"--arch grovemoe {F32} --experts 15 --top-k 5 "
     "--per-adjugate 3 --adjugate-ff 40 --layers 5 --embd 192 --heads 6 --kv-heads 2 --head-dim 48 --expert-ff 96 --tied",
     True, LONG),
    ("grovemoe q4_K", f"--arch grovemoe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --adjugate-ff 256", KL, LONG),
    ("glm4moe f32", f"--arch glm4moe {F32} {MOE} --layers 5 --dense-layers 1 --rotated 32 --router-scale 2.5 --nextn 1",
     True, LONG),
    ("glm4moe f32, no q and k norms, sections, odd", f"--arch glm4moe {F32} --experts 11 --top-k 4 --layers 4 "
     "--dense-layers 2 --embd 192 --heads 6 --kv-heads 2 --head-dim 48 --rotated 24 --expert-ff 96 --shared-ff 192 "
     "--ff 160 --no-qk-norm --qkv-bias --sections --rope-base 10000 --tied", True, LONG),
    ("glm4moe q4_K", f"--arch glm4moe -t Q4_K --down Q6_K {MOE} --expert-ff 256 --layers 4 --dense-layers 1 "
     "--rotated 32 --nextn 1", KL, LONG),
    ("odd rows fall back", f"--arch qwen3moe -t Q4_K {MOE} --embd 288 --expert-ff 96", KL),
]
for t in ("Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ3_XXS IQ3_S "
          "IQ4_NL IQ4_XS MXFP4 TQ1_0 TQ2_0").split():
    CASES.append((f"type {t}", f"--arch qwen3moe -t {t} {MOE} --expert-ff 256 --layers 3", KL))
