from shardwise.random.keys import *
from shardwise.random.uniform import *
