# Sourced by the script that tests/guides makes of a guide: its checks, and the steps that a reader does by hand.
set -Eeuo pipefail

output=$(mktemp) line=0
failed() {
  local status=$?
  echo "a command of the block at line $line failed; its output:" >&2
  cat "$output" >&2
  exit "$status"
}
trap failed ERR
ended() {
  local processes
  processes=$(jobs -p)
  # shellcheck disable=SC2086
  if [ -n "$processes" ]; then kill $processes 2> /dev/null || true; wait; fi
  rm -f "$output"
}
trap ended EXIT

# expect: the block's output is the input, in which `...` stands for any text.
expect() {
  local pattern
  pattern=$(sed 's/[][\\.*^$+?(){}|]/\\&/g; s/\\\.\\\.\\\./.*/g')
  if [[ $(cat "$output") =~ ^$pattern$ ]]; then return; fi
  echo "the output of the block at line $line is not the one that the guide states" >&2
  false
}

# begin LINE: of the next block.
begin() {
  line=$1
  echo "$SECONDS s: line $line"
}
by_hand() { "by_hand_$1"; }

# Local chains with the ids of networks stand in for them, so that configuration and commands stay the same.

# The account that deploys and owns the local tokens: anvil's first one, which signs without a key. It is also the reader's
# wallet: it pays, and rules the settlement contract.
WALLET=0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266
WALLET_KEY=0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80
TREASURY_OF_WALLET=0x70997970C51812dc3A010C7d01b50e0d17dc79C8

# rpc URL METHOD PARAMETERS: prints the result.
rpc() {
  curl -sS "$1" -H 'Content-Type: application/json' -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$2\",\"params\":$3}" |
    jq -er 'if .error then error(.error.message) else .result | if type == "string" then . else tojson end end'
}
# word VALUE: as 32 bytes in hexadecimal digits. VALUE is an address or a number.
word() {
  case $1 in
    0x*) printf '%064s' "${1#0x}" | tr ' ' 0 ;;
    *) printf '%064x' "$1" ;;
  esac
}
# send URL TO DATA: a transaction of the wallet, in the next block.
send() {
  rpc "$1" eth_sendTransaction "[{\"from\":\"$WALLET\",\"to\":\"$2\",\"data\":\"$3\",\"gas\":\"0x7a120\"}]"
}
transfer() { send "$1" "$2" "0xa9059cbb$(word "$3")$(word "$4")"; }

# network NAME CHAIN_ID TOKEN...: starts a local chain with test tokens at the addresses of the network's; its URL is in URL.
network() {
  local log=$PWD/anvil-$1.log token code deployed
  "${ANVIL:-$ROOT/.tools/anvil/anvil}" --chain-id "$2" --port 0 --block-time 0.4 --slots-in-an-epoch 2 --hardfork prague \
    --cache-path "$PWD/anvil-$1" > "$log" 2>&1 &
  until grep -q 'Listening on' "$log"; do sleep 0.1; done
  URL=http://$(sed -n 's/.*Listening on //p' "$log" | tr -d ' ')
  # The gas oracles of OP chains and of Arbitrum: data on Ethereum costs nothing.
  for code in 0x420000000000000000000000000000000000000F 0x00000000000000000000000000000000000000C8; do
    rpc "$URL" anvil_setCode "[\"$code\",\"0x60606000f3\"]" > /dev/null
  done
  code=$(jq -r .bytecode "$ROOT/contracts/artifacts/TestUSDC.json")$(word "$WALLET")
  deployed=$(rpc "$URL" eth_sendTransaction "[{\"from\":\"$WALLET\",\"data\":\"$code\",\"gas\":\"0x5b8d80\"}]")
  rpc "$URL" evm_mine '[]' > /dev/null
  deployed=$(rpc "$URL" eth_getTransactionReceipt "[\"$deployed\"]" | jq -r .contractAddress)
  code=$(rpc "$URL" eth_getCode "[\"$deployed\",\"latest\"]")
  for token in "${@:3}"; do
    rpc "$URL" anvil_setCode "[\"$token\",\"$code\"]" > /dev/null
    send "$URL" "$token" "0x40c10f19$(word "$WALLET")$(word 1000000000000)" > /dev/null
  done
}

# Endpoints of the test networks.
by_hand_endpoints() {
  local URL
  network base 84532 0x036CbD53842c5426634e7929541eC2318f3dCF7e
  export BASE=$URL
  network polygon 80002 0x41E94Eb019C0762f9Bfcf9Fb1E58725BfB0e7582
  export POLYGON=$URL
  network arbitrum 421614 0x75faf114eafb1BDbe2F0316DF893fd58CE46AA4d
  export ARBITRUM=$URL
}
# The example configuration.
by_hand_configuration() { cp "$ROOT/docs/src/examples/testnet.toml" payferry.toml; }
# Two accounts of the wallet, and the key of the first one.
by_hand_accounts() {
  export ADMIN=$WALLET TREASURY=$TREASURY_OF_WALLET
  echo "$WALLET_KEY" > admin.key
  chmod 600 admin.key
}
# 0.05 ETH or 1 POL for the accounts in the file accounts.txt.
by_hand_faucet() {
  local account
  while read -r account; do
    rpc "$BASE" anvil_setBalance "[\"$account\",\"0xb1a2bc2ec50000\"]" > /dev/null
    rpc "$POLYGON" anvil_setBalance "[\"$account\",\"0xde0b6b3a7640000\"]" > /dev/null
    rpc "$ARBITRUM" anvil_setBalance "[\"$account\",\"0xb1a2bc2ec50000\"]" > /dev/null
  done < accounts.txt
}
# The payer sends with a wallet what the page of the payment in payment.json asks for.
by_hand_wallet() {
  transfer "$BASE" "$(jq -r .token_address payment.json)" "$(jq -r .intermediary_wallet payment.json)" \
    "$(jq -r '.amount | tonumber * 1000000 | round' payment.json)" > /dev/null
}

# The parts of production that the guide's reader has before it starts: chains, keystores of the signers, the admin's key,
# lists and the configuration. The keystores hold anvil's second and third account.
by_hand_production() {
  local URL account
  network base 8453 0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913
  BASE=$URL
  network polygon 137 0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359 0xc2132D05D31c914a87C6611C10748AEb04B58e8F
  POLYGON=$URL
  network arbitrum 42161 0xaf88d065e77c8cC2239327C5EDb3A432268e5831 0xFd086bC7CD5C481DCC9C85ebE478A1C0b69FCbb9
  ARBITRUM=$URL
  # Oracles of sanctions, without an entry.
  rpc "$BASE" anvil_setCode '["0x3A91A31cB3dC49b4db9Ce721F50a9D076c8D739B","0x60206000f3"]' > /dev/null
  for URL in "$POLYGON" "$ARBITRUM"; do
    rpc "$URL" anvil_setCode '["0x40C57923924B5c5c5455c48D93317139ADDaC8fb","0x60206000f3"]' > /dev/null
  done
  umask 077
  keystore settler 70997970C51812dc3A010C7d01b50e0d17dc79C8 de2b36a9076bbb7729e54f9153a49663 \
    46c2d6a171ae82bb829a176b84e22a94508c941b35bbeb46875da8e8e6ec360a \
    64e676a130d849460923cb81842b76b0 07ac54be40e59724939d3e56d5984153b14e9c1ac3b084f5d368af020d36972a
  keystore sender 3C44CdDdB6a900fa2b585dd299e03d12FA4293BC 1bd66b1d572e2dd44eccfa7c2f166902 \
    a445211da65af8d4493d072a9b816fd701a03de9fdd9695355c742f29c7c27d9 \
    adc4fb5104936ac4c7033a164cc15ce2 b2fa285256109d6e16f37dd1efe2e7516132bc775c79669969899dfbdad7904c
  echo "$WALLET_KEY" > admin.key
  head -c 32 /dev/urandom | xxd -p -c 64 > master.key
  head -c 24 /dev/urandom | xxd -p -c 64 > operator.token
  echo 0x000000000000000000000000000000000000dEaD > sanctions.txt
  echo 'Terms of service' > terms.txt
  # Each endpoint under two names: the second provider is the same chain here.
  sed "s|/etc/payferry|$PWD|; s|^url = .*|url = \"payferry.db\"|; /^\[identity\]/,/^\$/d
    s|https://base.provider-one.example/KEY|$BASE|; s|https://base.provider-two.example/KEY|${BASE/127.0.0.1/localhost}|
    s|https://polygon.provider-one.example/KEY|$POLYGON|
    s|https://polygon.provider-two.example/KEY|${POLYGON/127.0.0.1/localhost}|
    s|https://arbitrum.provider-one.example/KEY|$ARBITRUM|
    s|https://arbitrum.provider-two.example/KEY|${ARBITRUM/127.0.0.1/localhost}|
    s|^treasury = \"[^\"]*\"|treasury = \"0x90F79bf6EB2c4f870365E785982E1f101E93b906\"|
    s|^admin = \"[^\"]*\"|admin = \"$WALLET\"|; s|^\[server\]|&\nterms_file = \"terms.txt\"|
    \$a [operators]\nfour_eyes = true" "$ROOT/docs/src/examples/mainnet.toml" > payferry.toml
}
# keystore NAME ADDRESS IV CIPHERTEXT SALT MAC: a keystore with a weak key derivation, which is fast.
keystore() {
  echo "local chains" > "$1.password"
  cat > "$1.json" <<KEYSTORE
{"version": 3, "id": "3065e2f5-d7d2-47bc-87fa-849fd989cd17", "address": "$2", "crypto": {"cipher": "aes-128-ctr",
"cipherparams": {"iv": "$3"}, "ciphertext": "$4", "kdf": "scrypt",
"kdfparams": {"dklen": 32, "n": 2, "r": 8, "p": 1, "salt": "$5"}, "mac": "$6"}}
KEYSTORE
}
